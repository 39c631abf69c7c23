// Package flaky is a download server that misbehaves, for tests. It does what
// testdata/cases/flaky_http_a.py does (case A-11) and more.
package flaky

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Body returns n bytes that do not repeat.
func Body(n int) []byte {
	b := make([]byte, 0, n+sha256.Size)
	for i := uint64(0); len(b) < n; i++ {
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, i))
		b = append(b, sum[:]...)
	}
	return b[:n]
}

// Changed returns what change serves later.
func Changed(b []byte) []byte { return append(bytes.Clone(b[1:]), 0) }

// Request is what a client asked.
type Request struct {
	Path, Range, IfRange, Authorization string
}

// Server serves Body under /MODE/anything:
//
//	ok         as a good server does
//	drop       closes the line after Part bytes
//	dropall    the same, and ignores ranges
//	norange    answers a request for a part with the whole body
//	nosay      honours ranges, does not announce it
//	lyingrange announces ranges, does not honour them
//	few        503 while another request is being served
//	slow       Part bytes, then a pause, and so on
//	stall      Part bytes, then silence
//	crawl      a byte now and then
//	len0       no length, ends by closing the line
//	len0drop   the same, and the first answer ends after Part bytes
//	chunked    no length, but a marked end
//	change     another body, ETag and date from the second request on
//	weak       no ETag and no date, drops like drop
//	longer     says one byte more than there is
//	total      says another size in Content-Range than before
//	badrange   sends another part than was asked, in good faith
//	junkrange  sends a part without saying which
//	gone       status 416 to every request for a part
//	busy       status 503 twice, then ok
//	endless    never ends, says no length
//	gzip       says that the body is compressed
//	html, lfs  a web page, a Git LFS pointer
//	header     a header of a megabyte
//	loop       redirects to itself
//	away       redirects to Away
//	secret     wants the token "sesame"
//
// Everything else is 404.
type Server struct {
	Body []byte
	Part int
	Away string

	// Silent, if not nil, is told when stall has gone silent.
	Silent chan bool

	mu       sync.Mutex
	requests []Request
	serving  int
}

// Requests returns what was asked so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Text of the answers of html and lfs.
const (
	HTML = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Please.</body></html>\n"
	LFS  = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 2561011876\n"
)

// lastModified is the date of all bodies but the changed one.
const lastModified = "Sun, 29 Nov 2026 10:00:00 GMT"

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mode, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	s.mu.Lock()
	s.requests = append(s.requests, Request{r.URL.Path, r.Header.Get("Range"), r.Header.Get("If-Range"), r.Header.Get("Authorization")})
	n := len(s.requests)
	s.serving++
	busy := s.serving > 1
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.serving--
		s.mu.Unlock()
	}()

	a := answer{w: w, r: r, body: s.Body, etag: `"one"`, modified: lastModified, end: -1, ranges: true, announce: true}
	drop := s.Part
	switch mode {
	case "ok":
	case "drop":
		a.end = drop
	case "dropall":
		a.end, a.ranges = drop, false
	case "norange":
		a.ranges = false
	case "lyingrange":
		a.ranges, a.lying = false, true
	case "nosay":
		a.announce = false
	case "few":
		if busy {
			http.Error(w, "one at a time", http.StatusServiceUnavailable)
			return
		}
		a.pause, a.step = time.Millisecond, drop
	case "slow":
		a.pause, a.step = 50*time.Millisecond, drop
	case "stall":
		a.end, a.silent = drop, s.Silent
		a.hang = true
	case "crawl":
		a.pause, a.step = 20*time.Millisecond, 1
	case "len0":
		a.noLength = true
	case "len0drop":
		a.noLength = true
		if n == 1 {
			a.end = drop
		}
	case "chunked":
		a.chunked = true
	case "change":
		a.end = drop
		if n > 1 {
			a.body, a.etag, a.modified, a.end = Changed(s.Body), `"two"`, "Sun, 29 Nov 2026 11:00:00 GMT", -1
		}
	case "weak":
		a.etag, a.modified, a.end = "", "", drop
	case "longer":
		a.more = 1
	case "total":
		a.end = drop
		if n > 1 {
			a.more = 5
		}
	case "badrange":
		a.end, a.shift = drop, 7
	case "junkrange":
		a.end, a.noRange = drop, true
	case "gone":
		a.end = drop
		if r.Header.Get("Range") != "" {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", drop))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
	case "busy":
		if n <= 2 {
			w.Header().Set("Retry-After", "0")
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
	case "endless":
		w.Header().Set("ETag", a.etag)
		for {
			if _, err := w.Write(s.Body); err != nil {
				return
			}
		}
	case "gzip":
		w.Header().Set("Content-Encoding", "gzip")
	case "html":
		w.Header().Set("Content-Type", "application/octet-stream")
		io.WriteString(w, HTML)
		return
	case "lfs":
		io.WriteString(w, LFS)
		return
	case "header":
		w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
	case "loop":
		http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		return
	case "away":
		http.Redirect(w, r, s.Away, http.StatusFound)
		return
	case "secret":
		if r.Header.Get("Authorization") != "Bearer sesame" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
	default:
		http.NotFound(w, r)
		return
	}
	a.send()
}

// answer is how one request is answered.
type answer struct {
	w              http.ResponseWriter
	r              *http.Request
	body           []byte
	etag, modified string
	ranges         bool // honours ranges
	announce       bool // says so
	lying          bool // says so and does not
	noLength       bool
	chunked        bool
	noRange        bool          // a part without Content-Range
	end            int           // bytes of the answer after which the line is closed, -1 for all
	hang           bool          // silence in place of closing
	silent         chan bool     //
	more           int           // added to the length that is announced
	shift          int           // added to the start of a part
	pause          time.Duration // between two steps
	step           int
}

func (a *answer) send() {
	h := a.w.Header()
	if a.etag != "" {
		h.Set("ETag", a.etag)
	}
	if a.modified != "" {
		h.Set("Last-Modified", a.modified)
	}
	if a.announce && (a.ranges || a.end >= 0) || a.lying {
		h.Set("Accept-Ranges", "bytes")
	}
	from, to, part := a.asked()
	if part && from >= len(a.body) {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", len(a.body)))
		a.w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return
	}
	body, code := a.body, http.StatusOK
	if part {
		from = min(from+a.shift, to-1)
		body, code = body[from:to], http.StatusPartialContent
		if !a.noRange {
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(a.body)+a.more))
		}
	}
	if !a.chunked {
		h.Set("Content-Length", strconv.Itoa(len(body)+a.more))
	}
	if part && a.more > 0 {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	cut := a.end >= 0 && len(body) > a.end
	if cut {
		body = body[:a.end]
	}
	if a.noLength {
		a.raw(code, body)
		return
	}
	a.w.WriteHeader(code)
	a.write(a.w, body)
	if a.hang && cut {
		a.w.(http.Flusher).Flush()
		if a.silent != nil {
			a.silent <- true
		}
		<-a.r.Context().Done()
	}
	// A handler that wrote less than it announced has its line closed.
}

func (a *answer) write(w io.Writer, body []byte) {
	if a.step == 0 {
		w.Write(body)
		return
	}
	for len(body) > 0 && a.r.Context().Err() == nil {
		n := min(a.step, len(body))
		w.Write(body[:n])
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		body = body[n:]
		time.Sleep(a.pause)
	}
}

// raw answers as HTTP/1.0 did: the end of the line is the end of the body.
func (a *answer) raw(code int, body []byte) {
	conn, buf, err := a.w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	h := a.w.Header()
	h.Del("Content-Length")
	h.Set("Connection", "close")
	fmt.Fprintf(buf, "HTTP/1.1 %d %s\r\n", code, http.StatusText(code))
	h.Write(buf)
	buf.WriteString("\r\n")
	buf.Write(body)
	buf.Flush()
}

// asked returns the part that is to be sent, and whether it is one.
func (a *answer) asked() (from, to int, part bool) {
	spec, ok := strings.CutPrefix(a.r.Header.Get("Range"), "bytes=")
	if !ok || !a.ranges {
		return 0, len(a.body), false
	}
	if v := a.r.Header.Get("If-Range"); v != "" && v != a.etag && v != a.modified {
		return 0, len(a.body), false
	}
	first, last, _ := strings.Cut(spec, "-")
	from, err := strconv.Atoi(first)
	if err != nil {
		return 0, len(a.body), false
	}
	to = len(a.body)
	if n, err := strconv.Atoi(last); err == nil && n < to {
		to = n + 1
	}
	return from, to, true
}
