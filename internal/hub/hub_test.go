package hub

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/internal/fetch"
	"npack/pack"
)

func TestParse(t *testing.T) {
	const mirror = "https://mirror.example/hf"
	for _, tc := range []struct {
		arg, endpoint string
		want          Ref
		other         bool // another server's address
		bad           bool
	}{
		{arg: "owner/name", want: Ref{DefaultEndpoint, "owner/name", "main", ""}},
		{arg: "owner/name@v1.0", want: Ref{DefaultEndpoint, "owner/name", "v1.0", ""}},
		{arg: "o-w_n.er/Name-8B_x.y@refs/pr/3", want: Ref{DefaultEndpoint, "o-w_n.er/Name-8B_x.y", "refs/pr/3", ""}},
		{arg: "https://huggingface.co/owner/name", want: Ref{DefaultEndpoint, "owner/name", "main", ""}},
		{arg: "huggingface.co/owner/name/", want: Ref{DefaultEndpoint, "owner/name", "main", ""}},
		{arg: "hf.co/owner/name", want: Ref{DefaultEndpoint, "owner/name", "main", ""}},
		{arg: "https://huggingface.co/owner/name/tree/v2", want: Ref{DefaultEndpoint, "owner/name", "v2", ""}},
		{arg: "https://huggingface.co/owner/name/tree/v2/dir", want: Ref{DefaultEndpoint, "owner/name", "v2", ""}},
		{arg: "https://huggingface.co/owner/name/blob/main/dir/a%20b.tv4z", want: Ref{DefaultEndpoint, "owner/name", "main", "dir/a b.tv4z"}},
		{arg: "https://huggingface.co/owner/name/resolve/refs%2Fpr%2F1/m.bin?download=true", want: Ref{DefaultEndpoint, "owner/name", "refs/pr/1", "m.bin"}},
		{arg: "owner/name", endpoint: mirror, want: Ref{mirror, "owner/name", "main", ""}},
		{arg: mirror + "/owner/name/resolve/main/m.bin", endpoint: mirror, want: Ref{mirror, "owner/name", "main", "m.bin"}},
		{arg: "https://huggingface.co/owner/name", endpoint: mirror, want: Ref{DefaultEndpoint, "owner/name", "main", ""}},
		{arg: "https://example.com/owner/name", other: true},
		{arg: "https://huggingface.co.evil.example/owner/name", other: true},
		{arg: "http://huggingface.co@evil.example/owner/name", other: true},

		{arg: "name", bad: true},
		{arg: "a/b/c", bad: true},
		{arg: "./name", bad: true},
		{arg: "../name", bad: true},
		{arg: "owner/..", bad: true},
		{arg: "owner/a..b", bad: true},
		{arg: "owner/name@", bad: true},
		{arg: "owner/name@../..", bad: true},
		{arg: "owner/name@a b", bad: true},
		{arg: "owner/na\x00me", bad: true},
		{arg: "C:\\models\\x", bad: true},
		{arg: "https://huggingface.co/", bad: true},
		{arg: "https://huggingface.co/owner", bad: true},
		{arg: "https://huggingface.co/datasets/owner/name", bad: true},
		{arg: "https://huggingface.co/owner/name/discussions", bad: true},
		{arg: "https://huggingface.co/owner/name/resolve/main/..%2f..%2fetc%2fpasswd", bad: true},
		{arg: "https://huggingface.co/owner/name/resolve/main/a%00b", bad: true},
		{arg: "https://huggingface.co/owner/..%2fname", bad: true},
		{arg: "://", bad: true},
	} {
		endpoint := tc.endpoint
		if endpoint == "" {
			endpoint = DefaultEndpoint
		}
		got, ok, err := Parse(tc.arg, endpoint)
		if (err != nil) != tc.bad || ok == (tc.bad || tc.other) || got != tc.want {
			t.Errorf("%q: %+v, %v, %v", tc.arg, got, ok, err)
		}
	}
}

func TestURLs(t *testing.T) {
	r := Ref{DefaultEndpoint, "owner/name", "refs/pr/1", ""}
	if got, want := r.FileURL("abc", "dir/a b?#.bin"), "https://huggingface.co/owner/name/resolve/abc/dir/a%20b%3F%23.bin"; got != want {
		t.Errorf("FileURL %q, want %q", got, want)
	}
	if got, want := r.listURL(), "https://huggingface.co/api/models/owner/name/revision/refs%2Fpr%2F1?blobs=true"; got != want {
		t.Errorf("listURL %q, want %q", got, want)
	}
	if r.String() != "owner/name@refs/pr/1" || (Ref{Repo: "o/n", Revision: "main"}).String() != "o/n" {
		t.Error(r.String())
	}
}

func TestFromEnv(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	home := filepath.Join(dir, "home")
	write("home/.cache/huggingface/token", "hf_home\n")
	write("hfhome/token", "hf_hfhome")
	elsewhere := write("elsewhere", "hf_path\n")
	bad := write("bad", "hf_a\nhf_b")
	for _, tc := range []struct {
		env  map[string]string
		want Hub
		err  string
	}{
		{want: Hub{DefaultEndpoint, "hf_home", filepath.Join(home, ".cache/huggingface/hub")}},
		{env: map[string]string{"HF_ENDPOINT": "http://127.0.0.1:9/hf/"}, want: Hub{"http://127.0.0.1:9/hf", "hf_home", filepath.Join(home, ".cache/huggingface/hub")}},
		{env: map[string]string{"XDG_CACHE_HOME": dir}, want: Hub{DefaultEndpoint, "", filepath.Join(dir, "huggingface/hub")}},
		{env: map[string]string{"HF_HOME": filepath.Join(dir, "hfhome")}, want: Hub{DefaultEndpoint, "hf_hfhome", filepath.Join(dir, "hfhome/hub")}},
		{env: map[string]string{"HF_HUB_CACHE": "/c", "HF_TOKEN_PATH": elsewhere}, want: Hub{DefaultEndpoint, "hf_path", "/c"}},
		{env: map[string]string{"HUGGING_FACE_HUB_TOKEN": "old", "HF_HUB_CACHE": "/c"}, want: Hub{DefaultEndpoint, "old", "/c"}},
		{env: map[string]string{"HF_TOKEN": " new ", "HUGGING_FACE_HUB_TOKEN": "old", "HF_HUB_CACHE": "/c"}, want: Hub{DefaultEndpoint, "new", "/c"}},
		{env: map[string]string{"HF_TOKEN_PATH": bad}, err: bad + " does not hold a token"},
		{env: map[string]string{"HF_TOKEN": "a\r\nHost: evil"}, err: "HF_TOKEN does not hold a token"},
		{env: map[string]string{"HF_ENDPOINT": "huggingface.co"}, err: "HF_ENDPOINT is"},
		{env: map[string]string{"HF_ENDPOINT": "file:///etc"}, err: "HF_ENDPOINT is"},
	} {
		got, err := FromEnv(func(name string) string { return tc.env[name] }, home)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), "hf_a") {
				t.Errorf("%v: %v, want %q", tc.env, err, tc.err)
			}
		} else if err != nil || got != tc.want {
			t.Errorf("%v: %+v, %v", tc.env, got, err)
		}
	}
	if h, err := FromEnv(func(string) string { return "" }, ""); err != nil || h != (Hub{Endpoint: DefaultEndpoint}) {
		t.Errorf("nothing set, no home: %+v, %v", h, err)
	}
}

const (
	commit = "0123456789012345678901234567890123456789"
	sha    = "0bb04b7ae30791e3b9fbb3ad9acf99d8d5931cc4b09f877ca03a5ef5ad4401ed"
)

func TestParseListing(t *testing.T) {
	answer := func(siblings string) string {
		return fmt.Sprintf(`{"id":"o/n","sha":%q,"siblings":[%s],"more":{"x":[1]}}`, commit, siblings)
	}
	l, err := parseListing("hub", []byte(answer(
		`{"rfilename":"config.json","size":5,"blobId":"ABCDEFABCDabcdefabcdabcdefabcdabcdefabcd"},`+
			`{"rfilename":"dir/m.tv4z","size":134,"blobId":"abcdefabcdabcdefabcdabcdefabcdabcdefabcd","lfs":{"sha256":"`+strings.ToUpper(sha)+`","size":2783,"pointerSize":134}},`+
			`{"rfilename":"plain"}`)))
	want := &Listing{commit, []File{
		{"config.json", 5, "", "abcdefabcdabcdefabcdabcdefabcdabcdefabcd"},
		{"dir/m.tv4z", 2783, sha, ""},
		{"plain", -1, "", ""},
	}}
	if d := cmp.Diff(want, l); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, bad := range []string{
		"", "{", "[]", `"x"`, "<html>", `{"sha":"main","siblings":[]}`, `{"sha":5}`,
		answer(`{"rfilename":"../../.ssh/authorized_keys"}`), answer(`{"rfilename":"/etc/passwd"}`), answer(`{"rfilename":"a\u0000b"}`),
		answer(`{"rfilename":"a\\..\\b"}`), answer(`{"rfilename":"C:evil"}`), answer(`{"rfilename":""}`), answer(`{"rfilename":"."}`),
		answer(`{"rfilename":"a//b"}`), answer(`{"rfilename":"a/./b"}`), answer(`{"rfilename":"a\u001b[2J"}`),
		answer(`{"rfilename":"a","size":-5}`), answer(`{"rfilename":"a","size":1e300}`), answer(`{"rfilename":"a","lfs":{"sha256":"zz"}}`), answer(`{"rfilename":"a","lfs":{}}`),
	} {
		if l, err := parseListing("hub", []byte(bad)); err == nil {
			t.Errorf("%s: %+v", bad, l)
		}
	}
}

func FuzzListing(f *testing.F) {
	f.Add([]byte(`{"sha":"` + commit + `","siblings":[{"rfilename":"a/b","size":3,"lfs":{"sha256":"` + sha + `"}}]}`))
	f.Add([]byte(`{"sha":"` + commit + `","siblings":[{"rfilename":"../a"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseListing("hub", b)
		if err != nil {
			return
		}
		dir := filepath.Join(string(filepath.Separator)+"a", "b")
		for _, f := range l.Files {
			if p := filepath.Join(dir, filepath.FromSlash(f.Name)); !strings.HasPrefix(p, dir+string(filepath.Separator)) || f.Size < -1 {
				t.Errorf("%q, %d bytes", f.Name, f.Size)
			}
		}
	})
}

func TestList(t *testing.T) {
	asked := ""
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RequestURI()
		if strings.Contains(asked, "huge") {
			for range (maxListing >> 20) + 1 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
			return
		}
		fmt.Fprintf(w, `{"sha":%q,"siblings":[{"rfilename":"m.bin"}]}`, commit)
	}))
	defer h.Close()
	c := fetch.New(fetch.Options{})
	l, err := List(t.Context(), c, Ref{h.URL, "o/n", "main", ""})
	if err != nil || l.Commit != commit || asked != "/api/models/o/n/revision/main?blobs=true" {
		t.Errorf("%+v, %v, asked %s", l, err, asked)
	}
	if _, err := List(t.Context(), c, Ref{h.URL, "o/huge", "main", ""}); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("an endless list: %v", err)
	}
}

func listing(names ...string) *Listing {
	l := &Listing{Commit: commit}
	for _, n := range names {
		l.Files = append(l.Files, File{Name: n, Size: 1})
	}
	return l
}

func TestChoose(t *testing.T) {
	m := &pack.Manifest{WeightsContainer: &pack.ContainerPin{File: "m.bin", CodedTransport: &pack.CodedTransport{File: "t/m.tv4z"}}}
	for _, tc := range []struct {
		name string
		l    *Listing
		c    Choice
		m    *pack.Manifest
		want string
		err  string
	}{
		{name: "transport", l: listing(".gitattributes", "config.json", "m.bin", "m.tv4z", "model.safetensors", "tokenizer.json", "trajectories.json"),
			c: Choice{Coded: true}, want: "config.json tokenizer.json m.tv4z"},
		{name: "container", l: listing("m.bin", "m.bin.sha256", "m.tv4z", "LICENSE.txt"), want: "m.bin.sha256 LICENSE.txt m.bin"},
		{name: "no transport", l: listing("m.bin", "MANIFEST.json"), c: Choice{Coded: true}, want: "MANIFEST.json m.bin"},
		{name: "manifest", l: listing("a.tv4z", "t/m.tv4z", "t/config.json", "u/config.json", "vocab.json", "m.bin"), c: Choice{Coded: true}, m: m, want: "t/config.json vocab.json t/m.tv4z"},
		{name: "manifest, no transport", l: listing("a.tv4z", "m.bin"), c: Choice{Coded: true}, m: m, want: "m.bin"},
		{name: "manifest without file", l: listing("a.tv4z"), m: m, err: `names "m.bin"`},
		{name: "two", l: listing("a.tv4z", "b.tv4z"), c: Choice{Coded: true}, err: "2 files end in .tv4z"},
		{name: "none", l: listing("a.gguf"), err: "no file ends in"},
		{name: "patterns", l: listing("a.json", "d/b.json", "c.bin"), c: Choice{Patterns: []string{"*.json", "d/*"}}, want: "a.json d/b.json"},
		{name: "no match", l: listing("a.json"), c: Choice{Patterns: []string{"*.bin"}}, err: `no file matches "*.bin"`},
		{name: "bad pattern", l: listing("a.json"), c: Choice{Patterns: []string{"["}}, err: `bad pattern "["`},
	} {
		files, err := tc.l.Choose(tc.c, tc.m)
		var got []string
		for _, f := range files {
			got = append(got, f.Name)
		}
		if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) || strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %q, %v", tc.name, got, err)
		}
	}
}

// The cache as the hub's programs lay it out, with links, and as they do where
// there are none.
func TestCached(t *testing.T) {
	dir := t.TempDir()
	repo := filepath.Join(dir, "models--o--n")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(repo, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	git := strings.Repeat("ab", 20)
	write("blobs/"+sha, "12345")
	write("blobs/"+git, "123")
	write("snapshots/"+commit+"/sub/copy.json", "1")
	links := runtime.GOOS != "windows"
	if links {
		if err := os.Symlink("../../blobs/"+sha, filepath.Join(repo, "snapshots", commit, "m.tv4z")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../blobs/gone", filepath.Join(repo, "snapshots", commit, "dangling")); err != nil {
			t.Fatal(err)
		}
	}
	h := Hub{Cache: dir}
	ref := Ref{Repo: "o/n"}
	for _, tc := range []struct {
		f    File
		want string
	}{
		{File{Name: "sub/copy.json", Size: 1}, "snapshots/" + commit + "/sub/copy.json"},
		{File{Name: "sub/copy.json", Size: 2}, ""},
		{File{Name: "other-name", Size: 5, SHA256: sha}, "blobs/" + sha},
		{File{Name: "x", Size: 3, Git: git}, "blobs/" + git},
		{File{Name: "x", Size: -1, Git: git}, ""},
		{File{Name: "dangling", Size: 5}, ""},
		{File{Name: "sub", Size: 4096}, ""},
	} {
		got := h.Cached(ref, commit, tc.f)
		if want := filepath.Join(repo, filepath.FromSlash(tc.want)); got != want && !(tc.want == "" && got == "") {
			t.Errorf("%+v: %q", tc.f, got)
		}
	}
	if got := h.Cached(ref, commit, File{Name: "m.tv4z", Size: 5}); links && got == "" {
		t.Error("a link into blobs was not followed")
	}
	if got := (Hub{}).Cached(ref, commit, File{Name: "sub/copy.json", Size: 1}); got != "" {
		t.Errorf("no cache: %q", got)
	}
}
