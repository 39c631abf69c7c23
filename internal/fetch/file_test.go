package fetch

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"npack/internal/flaky"
	"npack/pack"
)

// testBody is as long as that of flaky_http_a.py.
var testBody = flaky.Body(3 << 20)

// start serves body as flaky does and returns a client with times that suit a
// test.
func start(t *testing.T) (*flaky.Server, string, *Client) {
	t.Helper()
	s := &flaky.Server{Body: testBody, Part: 1 << 20}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL, New(Options{Stall: 500 * time.Millisecond, Backoff: time.Millisecond, Retries: 4, Connections: 1})
}

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func refuseOthers(name string) func([]byte, int64) error {
	return func(head []byte, size int64) error {
		switch pack.Sniff(head, size) {
		case pack.KindHTML, pack.KindLFS, pack.KindEmpty:
			_, err := pack.Identify(name, head, size)
			return err
		}
		return nil
	}
}

func names(t *testing.T, dir string) (n []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		n = append(n, e.Name())
	}
	return n
}

func TestFile(t *testing.T) {
	other := flaky.Changed(testBody)
	ranges := func(r ...string) []string { return r }
	for _, tc := range []struct {
		mode     string
		asked    []string // the ranges of all requests
		want     []byte
		restarts int
		unsure   bool
	}{
		{mode: "ok", asked: ranges("")},
		{mode: "drop", asked: ranges("", "bytes=1048576-3145727", "bytes=2097152-3145727")},
		{mode: "norange", asked: ranges("")},
		{mode: "slow", asked: ranges("")},
		{mode: "len0", asked: ranges("", "bytes=3145728-")},
		{mode: "len0drop", asked: ranges("", "bytes=1048576-")},
		{mode: "chunked", asked: ranges("")},
		{mode: "change", asked: ranges("", "bytes=1048576-3145727", ""), want: other, restarts: 1},
		{mode: "busy", asked: ranges("", "", "")},
		// Silence does not lose what came before it.
		{mode: "stall", asked: ranges("", "bytes=1048576-3145727", "bytes=2097152-3145727")},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			s, url, c := start(t)
			dir := t.TempDir()
			path := filepath.Join(dir, "m.bin")
			var done, total int64
			res, err := c.File(t.Context(), path, Target{URL: url + "/" + tc.mode + "/m.bin", Size: -1,
				Progress: func(d, n int64) { done, total = d, n }})
			if err != nil {
				t.Fatal(err)
			}
			want := tc.want
			if want == nil {
				want = testBody
			}
			if got, _ := os.ReadFile(path); !bytes.Equal(got, want) {
				t.Errorf("%d bytes, sha256 %s", len(got), sum(got))
			}
			if res.SHA256 != sum(want) || res.Bytes != int64(len(want)) || res.Restarts != tc.restarts || res.Unsure != tc.unsure {
				t.Errorf("result %+v", res)
			}
			var asked []string
			for _, r := range s.Requests() {
				asked = append(asked, r.Range)
				if r.Range != "" && r.IfRange != `"one"` {
					t.Errorf("range %s with If-Range %q", r.Range, r.IfRange)
				}
			}
			if !slices.Equal(asked, tc.asked) {
				t.Errorf("asked for %q, want %q", asked, tc.asked)
			}
			if n := names(t, dir); !slices.Equal(n, []string{"m.bin"}) {
				t.Errorf("left behind: %q", n)
			}
			noLength := tc.mode == "len0" || tc.mode == "chunked"
			if done != int64(len(want)) || (total == -1) != noLength {
				t.Errorf("progress ended at %d of %d", done, total)
			}
		})
	}
}

// Servers that cannot be believed give an error of the network, in bounded
// time and requests, and no file.
func TestFileRefuses(t *testing.T) {
	for _, tc := range []struct {
		mode string
		kind error
		text string
		kept bool // the part stays
		t    Target
	}{
		{mode: "dropall", kind: pack.ErrNetwork, text: "does not send parts of files", kept: true},
		{mode: "weak", kind: pack.ErrNetwork, text: "nothing tells whether the server's file is still the same", kept: true},
		{mode: "longer", kind: pack.ErrNetwork, text: "has 3145729 bytes, and then that it has no byte 3145728", kept: true},
		{mode: "total", kind: pack.ErrNetwork, text: "begun 5 times", kept: true},
		{mode: "badrange", kind: pack.ErrNetwork, text: "does not send parts of files", kept: true},
		{mode: "junkrange", kind: pack.ErrNetwork, text: "does not send parts of files", kept: true},
		{mode: "gone", kind: pack.ErrNetwork, text: "has no byte 1048576", kept: true},
		{mode: "crawl", kind: pack.ErrNetwork, text: "less than 1024 bytes came in 500ms (4 tries)", kept: true},
		{mode: "gzip", kind: pack.ErrNetwork, text: `content encoding "gzip"`},
		{mode: "header", kind: pack.ErrNetwork, text: "no answer"},
		{mode: "loop", kind: pack.ErrNetwork, text: "redirected more than 10 times"},
		{mode: "secret", kind: pack.ErrNetwork, text: "401 Unauthorized"},
		{mode: "none", kind: pack.ErrNetwork, text: "404 Not Found"},
		{mode: "html", kind: pack.ErrNotModel, text: "HTML page"},
		{mode: "lfs", kind: pack.ErrNotModel, text: "the real file is 2561011876 bytes"},
		{mode: "ok", kind: pack.ErrNotEqual, text: "has 3145728 bytes, expected 5", t: Target{Size: 5}},
		{mode: "html", kind: pack.ErrNotEqual, text: "bytes and is a HTML page, expected 3145728", t: Target{Size: 3 << 20}},
		{mode: "ok", kind: pack.ErrNotEqual, text: "sha256 " + sum(testBody) + ", expected " + sum(nil), t: Target{SHA256: sum(nil)}},
		{mode: "chunked", kind: pack.ErrNetwork, text: "ends after 3145728 bytes, not 3145729", t: Target{Size: 3<<20 + 1}, kept: true},
		{mode: "endless", kind: pack.ErrNotEqual, text: "sha256", t: Target{Size: 4 << 20, SHA256: sum(nil)}},
		{mode: "ok", kind: pack.ErrNotEqual, text: "git blob", t: Target{Git: "5d308e1d060b0c387d452cf4747f89ecb9935851"}},
		{mode: "ok", kind: pack.ErrNoSpace, text: "1152921504606846976 for the output", t: Target{Size: 1 << 60}},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			s, url, c := start(t)
			dir := t.TempDir()
			target := tc.t
			target.URL, target.Look = url+"/"+tc.mode+"/m.bin", refuseOthers("m.bin")
			if target.Size == 0 {
				target.Size = -1
			}
			if tc.kind == pack.ErrNoSpace {
				target.URL = url + "/endless/m.bin" // no length to compare with
			}
			_, err := c.File(t.Context(), filepath.Join(dir, "m.bin"), target)
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v, want %q", err, tc.text)
			}
			want := []string(nil)
			if tc.kept {
				want = []string{"m.bin.part", "m.bin.part.json"}
			}
			if n := names(t, dir); !slices.Equal(n, want) {
				t.Errorf("left behind: %q, want %q", n, want)
			}
			if n := len(s.Requests()); n > 20 {
				t.Errorf("%d requests", n)
			}
		})
	}
}
