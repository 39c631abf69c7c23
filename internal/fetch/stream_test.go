package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"npack/internal/flaky"
	"npack/pack"
)

func TestStream(t *testing.T) {
	for _, tc := range []struct {
		mode     string
		from     int64
		requests int
		kind     error
		text     string
		t        Target
	}{
		{mode: "ok", requests: 1},
		{mode: "ok", from: 1000, requests: 1},
		{mode: "ok", from: 3 << 20, requests: 0},
		{mode: "drop", requests: 3},
		{mode: "stall", requests: 3},
		{mode: "slow", requests: 1},
		{mode: "len0", requests: 2},
		{mode: "len0drop", requests: 2},
		{mode: "chunked", requests: 1},
		{mode: "norange", from: 1 << 20, requests: 1}, // skips what it has
		{mode: "busy", requests: 3},
		{mode: "ok", requests: 1, t: Target{SHA256: sum(testBody), Size: 3 << 20}},
		{mode: "ok", kind: pack.ErrNotEqual, text: "sha256 " + sum(testBody), t: Target{SHA256: sum(nil)}},
		{mode: "ok", kind: pack.ErrNotEqual, text: "has 3145728 bytes, expected 7", t: Target{Size: 7}},
		{mode: "endless", kind: pack.ErrNotEqual, text: "sha256", t: Target{Size: 4 << 20, SHA256: sum(nil)}},
		{mode: "chunked", kind: pack.ErrNetwork, text: "ends after 3145728 bytes, not 3145729", t: Target{Size: 3<<20 + 1}},
		{mode: "change", kind: ErrChanged, text: "another file is there"},
		{mode: "weak", kind: ErrChanged, text: "the line broke after 1048576 bytes"},
		{mode: "gone", kind: ErrChanged, text: "has no byte 1048576"},
		{mode: "total", kind: ErrChanged, text: "another file is there"},
		{mode: "dropall", kind: pack.ErrNetwork, text: "(4 tries)"},
		{mode: "badrange", kind: pack.ErrNetwork, text: "(4 tries)"},
		{mode: "crawl", kind: pack.ErrNetwork, text: "less than 1024 bytes came in 500ms (4 tries)"},
		{mode: "html", kind: pack.ErrNotModel, text: "HTML page"},
		{mode: "none", kind: pack.ErrNetwork, text: "404"},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			srv, url, c := start(t)
			target := tc.t
			target.URL, target.Look = url+"/"+tc.mode+"/m.bin", refuseOthers("m.bin")
			if target.Size == 0 {
				target.Size = -1
			}
			known := Entity{}
			if tc.from > 0 {
				known = Entity{ETag: `"one"`, Size: 3 << 20}
			}
			var b []byte
			s, err := c.Open(t.Context(), target, tc.from, known)
			if err == nil {
				defer s.Close()
				b, err = io.ReadAll(s)
			}
			if tc.kind != nil {
				if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("got %v, want %q", err, tc.text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b, testBody[tc.from:]) || s.Entity().Size != 3<<20 {
				t.Errorf("%d bytes, sha256 %s, %+v", len(b), sum(b), s.Entity())
			}
			if n := len(srv.Requests()); n != tc.requests {
				t.Errorf("%d requests, want %d", n, tc.requests)
			}
		})
	}
}

// Several connections bring the parts of a stream; servers that do not take
// part in it still serve it.
func TestStreamAhead(t *testing.T) {
	for _, tc := range []struct {
		mode     string
		from     int64
		parallel bool
		kind     error
	}{
		{mode: "ok", parallel: true},
		{mode: "ok", from: 777_777, parallel: true},
		{mode: "ok", from: 3<<20 - 150_000}, // not worth it
		{mode: "drop", parallel: true},
		{mode: "few", parallel: true}, // tried, and then without
		{mode: "norange"},
		{mode: "chunked"},
		{mode: "lyingrange", parallel: true},
		{mode: "change", kind: ErrChanged},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			srv, url, _ := start(t)
			srv.Part = 60 << 10
			c := New(Options{Stall: 5 * time.Second, Backoff: time.Millisecond, Retries: 3, Connections: 3, Segment: 400_000})
			known := Entity{}
			if tc.from > 0 {
				known = Entity{ETag: `"one"`, Size: 3 << 20}
			}
			target := Target{URL: url + "/" + tc.mode + "/m.bin", Size: -1}
			if tc.from == 0 && tc.kind == nil {
				target.SHA256 = sum(testBody)
			}
			s, err := c.Open(t.Context(), target, tc.from, known)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			b, err := io.ReadAll(s)
			if !errors.Is(err, tc.kind) || tc.kind == nil && !bytes.Equal(b, testBody[tc.from:]) {
				t.Errorf("%d bytes, sha256 %s, %v", len(b), sum(b), err)
			}
			parallel := false
			for _, r := range srv.Requests() {
				parallel = parallel || r.Range == fmt.Sprintf("bytes=%d-%d", tc.from+100_000, tc.from+199_999)
			}
			if parallel != tc.parallel && tc.kind == nil {
				t.Errorf("asked for %+v", srv.Requests())
			}
		})
	}
}

// A file that is another one than an earlier run's is told at once.
func TestStreamStale(t *testing.T) {
	_, url, c := start(t)
	for _, known := range []Entity{{ETag: `"zero"`, Size: 3 << 20}, {ETag: `"one"`, Size: 5 << 20}, {Modified: "Sat, 28 Nov 2026 10:00:00 GMT", Size: -1}, {Size: 3 << 20}} {
		if _, err := c.Open(t.Context(), Target{URL: url + "/ok/m.bin", Size: -1}, 1000, known); !errors.Is(err, ErrChanged) {
			t.Errorf("%+v: %v", known, err)
		}
	}
}

// Close and the end of the context end a Read that waits.
func TestStreamEnds(t *testing.T) {
	srv, url, _ := start(t)
	srv.Silent = make(chan bool, 9)
	c := New(Options{Stall: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	for name, end := range map[string]func(*Stream){"Close": func(s *Stream) { s.Close() }, "context": func(*Stream) { cancel() }} {
		s, err := c.Open(ctx, Target{URL: url + "/stall/m.bin", Size: -1}, 0, Entity{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		go func() { <-srv.Silent; end(s) }()
		if _, err := io.ReadAll(s); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "context" {
			ctx, cancel = context.WithCancel(t.Context())
		}
	}
	cancel()
}

func TestBytes(t *testing.T) {
	body, breaks := flaky.Body(100_000), 2
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100000")
		if breaks--; breaks >= 0 {
			w.Write(body[:5000]) // no validator: must be asked for anew
			return
		}
		w.Write(body)
	}))
	defer h.Close()
	c := New(Options{Backoff: time.Millisecond})
	if b, err := c.Bytes(t.Context(), h.URL, 100_000); err != nil || !bytes.Equal(b, body) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if _, err := c.Bytes(t.Context(), h.URL, 99_999); !errors.Is(err, pack.ErrNetwork) || !strings.Contains(err.Error(), "longer than 99999 bytes") {
		t.Errorf("limit: %v", err)
	}
	breaks = 1000
	if _, err := c.Bytes(t.Context(), h.URL, 100_000); !errors.Is(err, pack.ErrNetwork) {
		t.Errorf("always broken: %v", err)
	}
}
