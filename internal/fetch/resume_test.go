package fetch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"npack/pack"
)

// begin leaves a part of 1 MiB of /drop/ at path: a run that is interrupted
// when that much is there.
func begin(t *testing.T, c *Client, path, url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := c.File(ctx, path, Target{URL: url, Size: -1, Progress: func(done, _ int64) {
		if done >= 1<<20 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	st, err := os.Stat(path + ".part")
	if err != nil || st.Size() < 1<<20 {
		t.Fatalf("the part: %v, %v", st, err)
	}
}

// What an interrupted run leaves the next one goes on with, if it can be of
// the same file; the result is right either way.
func TestResume(t *testing.T) {
	edit := func(t *testing.T, path string, change func(r *record)) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var r record
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		change(&r)
		if b, err = json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name     string
		then     string // what the server does in the second run
		change   func(t *testing.T, part string)
		want     Target
		resumed  bool
		restarts int
		asked    string // in the second run's first request
	}{
		{name: "same file", then: "ok", resumed: true, asked: "bytes="},
		{name: "without ranges", then: "norange", restarts: 1, asked: "bytes="},
		{name: "another ETag", then: "ok", restarts: 1, asked: "bytes=",
			change: func(t *testing.T, part string) {
				edit(t, part+".json", func(r *record) { r.ETag = `"zero"`; r.Modified = "Sat, 28 Nov 2026 10:00:00 GMT" })
			}},
		{name: "another size", then: "ok", restarts: 1, asked: "bytes=",
			change: func(t *testing.T, part string) {
				edit(t, part+".json", func(r *record) { r.Size = 7 << 20 })
			}},
		{name: "weak ETag", then: "ok", resumed: true, asked: "bytes=",
			change: func(t *testing.T, part string) {
				edit(t, part+".json", func(r *record) { r.ETag = "" })
			}},
		{name: "no validator", then: "ok", asked: "",
			change: func(t *testing.T, part string) {
				edit(t, part+".json", func(r *record) { r.ETag, r.Modified = "", "" })
			}},
		{name: "no validator but a sum", then: "ok", want: Target{SHA256: sum(testBody)}, resumed: true, asked: "bytes=",
			change: func(t *testing.T, part string) {
				edit(t, part+".json", func(r *record) { r.ETag, r.Modified = "", "" })
			}},
		{name: "another address", then: "ok", asked: "",
			change: func(t *testing.T, part string) { edit(t, part+".json", func(r *record) { r.Key += "?" }) }},
		{name: "more than there is", then: "ok", asked: "",
			change: func(t *testing.T, part string) {
				if err := os.Truncate(part, 5000); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "no record", then: "ok", asked: "",
			change: func(t *testing.T, part string) {
				if err := os.Remove(part + ".json"); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "damaged record", then: "ok", asked: "",
			change: func(t *testing.T, part string) {
				edit(t, part+".json", func(r *record) { r.Done = spans{{10, 5}} })
			}},
		// The sum shows it, and all is fetched once more.
		{name: "damaged part", then: "ok", want: Target{SHA256: sum(testBody)}, restarts: 1, asked: "bytes=",
			change: func(t *testing.T, part string) {
				f, err := os.OpenFile(part, os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if _, err := f.WriteAt([]byte("damage"), 1000); err != nil {
					t.Fatal(err)
				}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, _, c := start(t)
			mode := "slow"
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path = "/" + mode + r.URL.Path
				s.ServeHTTP(w, r)
			}))
			defer h.Close()
			dir := t.TempDir()
			path := filepath.Join(dir, "m.bin")
			begin(t, c, path, h.URL+"/m.bin")
			if tc.change != nil {
				tc.change(t, path+".part")
			}
			mode = tc.then
			before := len(s.Requests())
			target := tc.want
			target.URL, target.Size = h.URL+"/m.bin", -1
			res, err := c.File(t.Context(), path, target)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := os.ReadFile(path); !bytes.Equal(got, testBody) {
				t.Errorf("%d bytes, sha256 %s", len(got), sum(got))
			}
			if (res.Resumed > 0) != tc.resumed || res.Restarts != tc.restarts || tc.resumed && res.Fetched+res.Resumed != int64(len(testBody)) {
				t.Errorf("result %+v", res)
			}
			if r := s.Requests()[before].Range; !strings.HasPrefix(r, tc.asked) || tc.asked == "" && r != "" {
				t.Errorf("asked for %q, want %q…", r, tc.asked)
			}
			if n := names(t, dir); !slices.Equal(n, []string{"m.bin"}) {
				t.Errorf("left behind: %q", n)
			}
		})
	}
}

// A part that is whole needs no server any more.
func TestResumeWhole(t *testing.T) {
	_, url, c := start(t)
	path := filepath.Join(t.TempDir(), "m.bin")
	begin(t, c, path, url+"/slow/m.bin")
	if err := os.WriteFile(path+".part", testBody, 0o666); err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(record{Key: Key(url + "/none/m.bin"), Entity: Entity{Size: 3 << 20}, Done: spans{{0, 3 << 20}}})
	if err := os.WriteFile(path+".part.json", b, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := c.File(t.Context(), path, Target{URL: url + "/none/m.bin", Size: -1}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, testBody) {
		t.Error("another file")
	}
}

// Several connections share a file; servers that do not take part in it still
// serve it.
func TestConnections(t *testing.T) {
	for _, tc := range []struct {
		mode     string
		parallel bool
		kind     error
	}{
		{mode: "ok", parallel: true},
		{mode: "drop", parallel: true},
		{mode: "few", parallel: true},
		{mode: "norange"},
		{mode: "nosay"},
		{mode: "chunked"},
		{mode: "len0"},
		{mode: "badrange", kind: pack.ErrNetwork},
		{mode: "gone", kind: pack.ErrNetwork},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			s, url, _ := start(t)
			s.Part = 400 << 10
			c := New(Options{Stall: time.Second, Backoff: time.Millisecond, Retries: 4, Connections: 4, Segment: 300_000})
			path := filepath.Join(t.TempDir(), "m.bin")
			_, err := c.File(t.Context(), path, Target{URL: url + "/" + tc.mode + "/m.bin", Size: -1})
			if !errors.Is(err, tc.kind) {
				t.Fatal(err)
			}
			if got, _ := os.ReadFile(path); tc.kind == nil && !bytes.Equal(got, testBody) {
				t.Errorf("%d bytes, sha256 %s", len(got), sum(got))
			}
			asked := map[string]int{}
			for _, r := range s.Requests() {
				asked[r.Range]++
			}
			if _, second := asked["bytes=300000-599999"]; second != tc.parallel && tc.kind == nil {
				t.Errorf("asked for %v", asked)
			}
		})
	}
}

// A run with several connections that ends early leaves holes; the next fills
// them, with any number of connections.
func TestResumeHoles(t *testing.T) {
	s, url, _ := start(t)
	s.Part = 100 << 10
	path := filepath.Join(t.TempDir(), "m.bin")
	ctx, cancel := context.WithCancel(t.Context())
	c := New(Options{Connections: 4, Segment: 700_000})
	_, err := c.File(ctx, path, Target{URL: url + "/slow/m.bin", Size: -1, Progress: func(done, _ int64) {
		if done > 900_000 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path + ".part.json")
	if err != nil {
		t.Fatal(err)
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil || len(r.Done) < 2 {
		t.Fatalf("no holes: %s, %v", b, err)
	}
	res, err := New(Options{Connections: 2, Segment: 200_000}).File(t.Context(), path, Target{URL: url + "/slow/m.bin", Size: -1, SHA256: sum(testBody)})
	if err != nil {
		t.Fatal(err)
	}
	if res.Restarts != 0 || res.Resumed < 900_000 || res.Fetched+res.Resumed != int64(len(testBody)) {
		t.Errorf("result %+v", res)
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, testBody) {
		t.Error("another file")
	}
}

// The token goes to its origin alone: not to another port, not where the
// origin redirects to, not over plain HTTP to another machine.
func TestToken(t *testing.T) {
	s, url, _ := start(t)
	other, otherURL, _ := start(t)
	s.Away = otherURL + "/ok/m.bin"
	other.Away = url + "/secret/m.bin"
	get := func(address, origin string) error {
		c := New(Options{Token: "sesame", Origin: origin, Connections: 1})
		_, err := c.Bytes(t.Context(), address, 4<<20)
		return err
	}
	if err := get(url+"/secret/m.bin", url); err != nil {
		t.Errorf("to its origin: %v", err)
	}
	if err := get(url+"/secret/m.bin", otherURL); !errors.Is(err, pack.ErrNetwork) || !strings.Contains(err.Error(), "401") {
		t.Errorf("to another origin: %v", err)
	}
	if err := get(url+"/away/m.bin", url); err != nil {
		t.Errorf("redirected: %v", err)
	}
	if err := get(otherURL+"/away/m.bin", url); err != nil {
		t.Errorf("redirected to its origin: %v", err)
	}
	for _, r := range other.Requests() {
		if r.Authorization != "" {
			t.Errorf("%s was sent %q", r.Path, r.Authorization)
		}
	}
	if n := len(other.Requests()); n != 2 {
		t.Errorf("%d requests at the other server", n)
	}
	sent := ""
	a := &authorized{Options{Token: "sesame", Origin: "http://models.example"}, roundTrip(func(r *http.Request) { sent = r.Header.Get("Authorization") })}
	for address, want := range map[string]string{"http://models.example/x": "", "https://models.example/x": ""} {
		r, _ := http.NewRequest("GET", address, nil)
		if _, _ = a.RoundTrip(r); sent != want {
			t.Errorf("%s was sent %q", address, sent)
		}
	}
}

type roundTrip func(*http.Request)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return nil, errors.New("no network in this test")
}

func TestRedirects(t *testing.T) {
	request := func(address string) *http.Request {
		r, err := http.NewRequest("GET", address, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, tc := range []struct {
		from, to string
		want     error
	}{
		{"https://a/x", "https://b/x", nil},
		{"http://a/x", "https://b/x", nil},
		{"http://a/x", "http://b/x", nil},
		{"https://a/x", "http://a/x", errDowngrade},
		{"https://a/x", "file:///etc/passwd", errScheme},
	} {
		if err := checkRedirect(request(tc.to), []*http.Request{request(tc.from)}); err != tc.want {
			t.Errorf("%s to %s: %v, want %v", tc.from, tc.to, err, tc.want)
		}
	}
}

func TestAddresses(t *testing.T) {
	c := New(Options{Backoff: time.Millisecond})
	for _, tc := range []struct{ address, want string }{
		{"ftp://host/x", "not an address that can be fetched"},
		{"http:///x", "not an address that can be fetched"},
		{"%zz", "not an address that can be fetched"},
		{"http://127.0.0.1:1/x", "(3 tries)"},
	} {
		if _, err := c.Bytes(t.Context(), tc.address, 100); !errors.Is(err, pack.ErrNetwork) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.address, err, tc.want)
		}
	}
	if got := Public("https://user:pass@host/a%20b?sig=secret#f"); got != "https://host/a%20b" {
		t.Errorf("Public gives %q", got)
	}
}

func TestContentRange(t *testing.T) {
	for s, want := range map[string]string{
		"bytes 0-99/200":                 "0 100 200 true",
		"bytes 5-5/*":                    "5 6 -1 true",
		"bytes */200":                    "-1 -1 200 false",
		"bytes 0-199/200":                "0 200 200 true",
		"bytes 0-200/200":                "-1 -1 200 false",
		"bytes 9-5/200":                  "-1 -1 200 false",
		"bytes -5-9/200":                 "-1 -1 200 false",
		"bytes 0-9":                      "-1 -1 -1 false",
		"bytes 0-9223372036854775807/*":  "-1 -1 -1 false",
		"items 0-99/200":                 "-1 -1 -1 false",
		"bytes 0-9/99999999999999999999": "-1 -1 -1 false",
		"":                               "-1 -1 -1 false",
	} {
		a, b, n, ok := contentRange(s)
		if got := fmt.Sprint(a, b, n, ok); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}

func TestSpans(t *testing.T) {
	var a spans
	for _, s := range []span{{10, 20}, {40, 50}, {30, 30}, {20, 25}, {0, 5}, {24, 41}, {3, 4}} {
		a = a.add(s)
	}
	if !slices.Equal(a, spans{{0, 5}, {10, 50}}) || a.total() != 45 || !a.valid(50) || a.valid(49) {
		t.Errorf("%v", a)
	}
	if m := a.missing(70, 8); !slices.Equal(m, spans{{5, 10}, {50, 58}, {58, 66}, {66, 70}}) {
		t.Errorf("missing %v", m)
	}
	if m := a.missing(-1, 8); !slices.Equal(m, spans{{5, 10}, {50, -1}}) {
		t.Errorf("missing, end unknown: %v", m)
	}
	for _, bad := range []spans{{{5, 5}}, {{5, 4}}, {{-1, 4}}, {{0, 5}, {5, 9}}, {{6, 9}, {0, 3}}} {
		if bad.valid(100) {
			t.Errorf("%v is valid", bad)
		}
	}
}

// Two runs for one file: the second is refused and harms nothing.
func TestTwoRuns(t *testing.T) {
	s, url, _ := start(t)
	s.Silent = make(chan bool, 1)
	c := New(Options{Connections: 1})
	path := filepath.Join(t.TempDir(), "m.bin")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.File(ctx, path, Target{URL: url + "/stall/m.bin", Size: -1}); !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
	})
	<-s.Silent
	if _, err := c.File(t.Context(), path, Target{URL: url + "/ok/m.bin", Size: -1}); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("the second: %v", err)
	}
	cancel()
	wg.Wait()
	if got, _ := os.ReadFile(path + ".part"); !bytes.Equal(got, testBody[:1<<20]) {
		t.Errorf("the part has %d bytes", len(got))
	}
}
