package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"npack/internal/cli"
	"npack/internal/expand"
	"npack/internal/fetch"
	"npack/internal/outfile"
	"npack/pack"
)

// wanted is a file that is to be brought, and what is known about it.
type wanted struct {
	url     string
	name    string // at the source
	out     string
	size    int64    // of what the address gives, -1 if not known
	sha256  string   // of that; "" if not known
	git     string   // of that, as a blob; "" if not known
	sources []string // who says so
	cached  string   // where the hub's programs may have it, or ""

	expand    bool
	container string    // its name, if the source says one
	want      *pack.Pin // of the container
}

// pulled is what became of it.
type pulled struct {
	File     string   `json:"file"`
	URL      string   `json:"url"`
	Status   string   `json:"status"`
	Bytes    int64    `json:"bytes"`
	SHA256   string   `json:"sha256"`
	Sources  []string `json:"sources"`  // what it was compared with
	Fetched  int64    `json:"fetched"`  // bytes that came over the line in this run
	Resumed  int64    `json:"resumed"`  // bytes of the file that an earlier run left
	Restarts int      `json:"restarts"` // times it was begun again
}

const (
	statusFetched  = "fetched"
	statusExpanded = "expanded" // while it was fetched, or from the cache
	statusCopied   = "copied"   // from the cache of the hub's programs
	statusPresent  = "present"  // it was there already
)

// pin adds what a source says about the bytes at the address. Sources that
// contradict each other are an error before anything is fetched.
func (w *wanted) pin(size int64, sha256, source string) error {
	clash := func(found, expected string) error {
		return &pack.Error{Kind: pack.ErrNotEqual, File: w.name, Offset: -1, Found: source + " says " + found, Expected: expected + ", from " + strings.Join(w.sources, ", "),
			Hint: "one of them is of another version of the file"}
	}
	if size >= 0 && w.size >= 0 && size != w.size {
		return clash(fmt.Sprintf("%d bytes", size), fmt.Sprint(w.size))
	}
	if sha256 != "" && w.sha256 != "" && sha256 != w.sha256 {
		return clash("sha256 "+sha256, w.sha256)
	}
	w.size = max(w.size, size)
	if sha256 != "" {
		w.sha256 = sha256
	}
	if size >= 0 || sha256 != "" {
		w.addSource(source)
	}
	return nil
}

// pinContainer adds what a source says about the container of a transport.
func (w *wanted) pinContainer(size int64, sha256, source string) error {
	if w.want == nil {
		w.want = &pack.Pin{Bytes: -1}
	}
	if size >= 0 && w.want.Bytes >= 0 && size != w.want.Bytes || sha256 != "" && w.want.SHA256 != "" && sha256 != w.want.SHA256 {
		return &pack.Error{Kind: pack.ErrNotEqual, File: w.out, Offset: -1, Found: source + " contradicts " + strings.Join(w.sources, ", "), Hint: "one of them is of another version of the file"}
	}
	w.want.Bytes = max(w.want.Bytes, size)
	if sha256 != "" {
		w.want.SHA256 = sha256
	}
	w.addSource(source)
	return nil
}

func (w *wanted) addSource(s string) {
	if !slices.Contains(w.sources, s) {
		w.sources = append(w.sources, s)
	}
}

// bring makes w.out what it should be, if it is not yet.
func (p *pulling) bring(w *wanted) error {
	f := &pulled{File: w.out, URL: fetch.Public(w.url)}
	err := p.present(w, f)
	if err == nil && f.Status == "" && w.cached != "" {
		err = p.fromCache(w, f)
	}
	if err == nil && f.Status == "" {
		if w.expand {
			err = p.expand(w, f, p.stream(w, f))
			f.Status = statusExpanded
		} else {
			err = p.fetch(w, f)
			f.Status = statusFetched
		}
	}
	if err != nil {
		return err
	}
	f.Sources = append([]string{}, w.sources...)
	p.Files = append(p.Files, *f)
	p.say(p.c.App.Writer, f)
	return nil
}

// present looks at what is at w.out already. It sets f.Status if that is the
// file, and refuses to replace another one without --force.
func (p *pulling) present(w *wanted, f *pulled) error {
	st, err := os.Stat(w.out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return outfile.Check(w.out) // which says what it is
	}
	if done, err := p.pointer(w, st.Size()); done || err != nil {
		return err
	}
	want := pack.Pin{Bytes: w.size, SHA256: w.sha256}
	git := w.git
	if w.expand {
		want, git = pack.Pin{Bytes: -1}, ""
		if w.want != nil {
			want = *w.want
		}
	}
	differs := want.Bytes >= 0 && want.Bytes != st.Size()
	if (want.SHA256 != "" || git != "") && !differs {
		sums, err := p.sums(w.out, git != "")
		if err != nil {
			return err
		}
		if (want.SHA256 == "" || want.SHA256 == sums.sha256) && git == sums.git {
			f.Status, f.Bytes, f.SHA256 = statusPresent, st.Size(), sums.sha256
			return nil
		}
		differs = true
	}
	if p.c.Bool("force") {
		return nil
	}
	hint := "--force replaces it; or name another OUT"
	if !differs {
		return cli.WithHint(fmt.Errorf("%q is there, and nothing says whether it is the file that would be fetched", w.out), hint)
	}
	return &pack.Error{Kind: pack.ErrNotEqual, File: w.out, Offset: -1, Found: "this file is there and is not the one at the source", Expected: "the one that " + strings.Join(w.sources, ", ") + " describe", Hint: hint}
}

// pointer reports whether the file at w.out is a Git LFS pointer, as a clone
// without LFS leaves them: it is to be replaced, by what it says.
func (p *pulling) pointer(w *wanted, size int64) (bool, error) {
	if size > pack.SniffLen {
		return false, nil
	}
	b, err := os.ReadFile(w.out)
	if err != nil || pack.Sniff(b, size) != pack.KindLFS {
		return false, err
	}
	n, ok := pack.LFSSize(b)
	if !ok {
		n = -1
	}
	sum := ""
	for line := range strings.Lines(string(b)) {
		if s, ok := strings.CutPrefix(strings.TrimSpace(line), "oid sha256:"); ok && isSHA256(s) {
			sum = strings.ToLower(s)
		}
	}
	const source = "the LFS pointer in its place"
	if w.expand {
		return true, w.pinContainer(n, sum, source)
	}
	return true, w.pin(n, sum, source)
}

// sums are the digests of a file.
type sums struct{ sha256, git string }

func (p *pulling) sums(path string, git bool) (s sums, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return s, err
	}
	bar := cli.NewProgress(p.c.App.ErrWriter, p.c.Bool("quiet"))
	defer bar.Done()
	pin, err := pack.HashFile(p.c.Context, path, func(n int64) { bar.Show("comparing "+path, n, st.Size()) })
	if err == nil && git {
		s.git, err = fetch.GitBlob(path)
	}
	s.sha256 = pin.SHA256
	return s, err
}

// fromCache takes the file from the cache of the hub's programs, if its bytes
// are right. The cache is read, never linked to: what a user does to the file
// must not change the cache.
func (p *pulling) fromCache(w *wanted, f *pulled) error {
	sums, err := p.sums(w.cached, w.git != "")
	if err != nil || w.sha256 == "" && w.git == "" || w.sha256 != "" && w.sha256 != sums.sha256 || w.git != sums.git {
		return p.c.Context.Err() // of no use: fetch it
	}
	if w.expand {
		err = p.expand(w, f, cachedTransport(w.cached, sums.sha256))
		f.Status = statusExpanded
		return err
	}
	in, err := os.Open(w.cached)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := outfile.Create(w.out, st.Size())
	if err != nil {
		return err
	}
	defer out.Abort()
	if f.Bytes, err = io.Copy(out, in); err != nil {
		return err
	}
	f.Status, f.SHA256 = statusCopied, sums.sha256
	return out.Commit()
}

func cachedTransport(path, sum string) expand.Transport {
	return expand.Transport{Name: path, Open: func(_ context.Context, from int64, key string) (io.ReadCloser, int64, string, error) {
		in, err := os.Open(path)
		if err != nil {
			return nil, 0, "", err
		}
		st, err := in.Stat()
		if err == nil {
			_, err = in.Seek(from, io.SeekStart)
		}
		if err == nil && key != "" && key != sum {
			err = fetch.ErrChanged
		}
		if err != nil {
			in.Close()
			return nil, 0, "", err
		}
		return in, st.Size(), sum, nil
	}, Again: isChanged}
}

func isChanged(err error) bool { return errors.Is(err, fetch.ErrChanged) }

// target is w for the package that fetches.
func (p *pulling) target(w *wanted) fetch.Target {
	t := fetch.Target{URL: w.url, Size: w.size, SHA256: w.sha256, Git: w.git}
	if w.sha256 == "" && w.git == "" || w.expand {
		t.Look = func(head []byte, size int64) error { return lookAt(w, head, size) }
	}
	return t
}

// lookAt refuses what is no model's file by its first bytes: a sum would tell,
// but not why.
func lookAt(w *wanted, head []byte, size int64) error {
	switch kind := pack.Sniff(head, size); kind {
	case pack.KindHTML, pack.KindEmpty:
		_, err := pack.Identify(fetch.Public(w.url), head, size)
		return err
	case pack.KindLFS:
		_, err := pack.Identify(fetch.Public(w.url), head, size)
		return cli.WithHint(err, "fetch the file itself: on a hub the address has /resolve/ in place of /raw/")
	}
	return nil
}

// fetch brings the bytes as they are.
func (p *pulling) fetch(w *wanted, f *pulled) error {
	t := p.target(w)
	bar, check := cli.NewProgress(p.c.App.ErrWriter, p.c.Bool("quiet")), cli.NewProgress(p.c.App.ErrWriter, p.c.Bool("quiet"))
	defer check.Done()
	defer bar.Done()
	t.Progress = func(done, total int64) { bar.Show(w.name, done, total) }
	t.Checking = func(done, total int64) { bar.Done(); check.Show("checking "+w.name, done, total) }
	res, err := p.client.File(p.c.Context, w.out, t)
	if err != nil {
		return err
	}
	f.Bytes, f.SHA256, f.Fetched, f.Resumed, f.Restarts = res.Bytes, res.SHA256, res.Fetched, res.Resumed, res.Restarts
	if res.Unsure {
		cli.Warn(p.c.App.ErrWriter, p.c.App.Name, "%q: the server did not say how long the file is: if the line broke, its end is missing", w.out)
	}
	return nil
}

// stream is the transport at w's address.
func (p *pulling) stream(w *wanted, f *pulled) expand.Transport {
	return expand.Transport{Name: fetch.Public(w.url), Again: isChanged,
		Open: func(ctx context.Context, from int64, key string) (io.ReadCloser, int64, string, error) {
			var k streamKey
			if key != "" && (json.Unmarshal([]byte(key), &k) != nil || k.Address != fetch.Key(w.url) && (k.SHA256 == "" || k.SHA256 != w.sha256)) {
				return nil, 0, "", fetch.ErrChanged
			}
			t := p.target(w)
			bar := cli.NewProgress(p.c.App.ErrWriter, p.c.Bool("quiet"))
			last := from
			t.Progress = func(done, total int64) {
				f.Fetched += done - last
				last = done
				bar.Show(w.name, done, total)
			}
			s, err := p.client.Open(ctx, t, from, k.Entity)
			if err != nil {
				return nil, 0, "", err
			}
			b, err := json.Marshal(streamKey{fetch.Key(w.url), w.sha256, s.Entity()})
			return &barred{s, bar}, max(s.Entity().Size, 0), string(b), err
		}}
}

// streamKey tells one transport on a server from the next.
type streamKey struct {
	Address string `json:"address"`
	SHA256  string `json:"sha256,omitempty"`
	fetch.Entity
}

// barred is a stream with its progress bar.
type barred struct {
	*fetch.Stream
	bar *cli.Progress
}

func (b *barred) Close() error {
	b.bar.Done()
	return b.Stream.Close()
}

// expand writes the container of a transport to w.out.
func (p *pulling) expand(w *wanted, f *pulled, t expand.Transport) error {
	n, err := threads(p.c)
	if err != nil {
		return err
	}
	res, err := expand.File(p.c.Context, w.out, t, expand.Options{Want: w.want, Threads: n, KeepFull: true})
	if err != nil {
		return err
	}
	if res.Mismatch != nil {
		cli.Warn(p.c.App.ErrWriter, p.c.App.Name, "%d row sums are not the rows', the first: %v", res.Survey.SumMismatches, res.Mismatch)
	}
	w.addSource("md5 in the transport")
	f.Bytes, f.SHA256, f.Resumed, f.Restarts = res.Bytes, res.SHA256, res.Resumed, res.Restarts
	return nil
}
