package fetch

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"npack/pack"
)

// Entity is what a server says that tells one content of an address from the
// next.
type Entity struct {
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"last_modified,omitempty"`
	Size     int64  `json:"size"` // -1 if the server does not say
}

// validator returns what If-Range may hold: a strong ETag, else the date.
func (e Entity) validator() string {
	if strings.HasPrefix(e.ETag, `"`) {
		return e.ETag
	}
	return e.Modified
}

// differs reports whether two answers speak of different contents.
func (e Entity) differs(o Entity) bool {
	if e.Size >= 0 && o.Size >= 0 && e.Size != o.Size {
		return true
	}
	if e.ETag != "" && o.ETag != "" {
		return e.ETag != o.ETag // dates may differ between the servers of one name
	}
	return e.Modified != "" && o.Modified != "" && e.Modified != o.Modified
}

// response is an answer whose body starts at byte from of the file.
type response struct {
	Entity
	from   int64
	part   bool // the answer is a part of the file
	ranges bool // the server can send parts
	framed bool // the end of the body is marked: an early end is an error
	r      *bufio.Reader
	b      *body
}

func (r *response) close() { r.b.Close() }

// pastEnd is the answer to a request for bytes that the file does not have.
type pastEnd struct {
	err  *pack.Error
	size int64 // as the server says, or -1
}

func (p *pastEnd) Error() string { return p.err.Error() }
func (p *pastEnd) Unwrap() error { return p.err }

// errBadRange is an answer to a range that is none.
var errBadRange = errors.New("answered a request for a part with something else")

// once asks for the bytes from from to to (exclusive; -1: to the end). known
// is what earlier answers said, nil for none. The answer may start at 0 where
// from was asked: the server does not do ranges, or has another content.
func (c *Client) once(ctx context.Context, address string, from, to int64, known *Entity) (*response, error) {
	rctx, cancel := context.WithCancelCause(ctx)
	r, err := c.ask(rctx, address, from, to, known)
	if err != nil {
		defer cancel(nil)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	r.b.ctx, r.b.cancel = rctx, cancel
	r.b.timer = time.AfterFunc(c.o.Stall, func() { cancel(errStalled) })
	r.b.timer.Stop()
	r.r = bufio.NewReaderSize(r.b, 4096)
	return r, nil
}

func (c *Client) ask(ctx context.Context, address string, from, to int64, known *Entity) (*response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return nil, fail(address, "an address starts with https:// or http://", "not an address that can be fetched")
	}
	req.Header.Set("User-Agent", or(c.o.UserAgent, "npack"))
	req.Header.Set("Accept-Encoding", "identity")
	part := from > 0 || to >= 0
	if part {
		end := ""
		if to >= 0 {
			end = strconv.FormatInt(to-1, 10)
		}
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%s", from, end))
		if known != nil && known.validator() != "" {
			req.Header.Set("If-Range", known.validator())
		}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, explain(address, err)
	}
	r := &response{Entity: Entity{ETag: res.Header.Get("ETag"), Modified: res.Header.Get("Last-Modified"), Size: -1},
		b: &body{rc: res.Body, address: address, stall: c.o.Stall, left: c.o.Stall}}
	bad := func(err error) (*response, error) {
		res.Body.Close()
		return nil, err
	}
	if len(r.ETag) > 1024 || len(r.Modified) > 128 {
		return bad(fail(address, "", "the server's ETag or Last-Modified has %d bytes", max(len(r.ETag), len(r.Modified))))
	}
	if e := res.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return bad(fail(address, "the server compresses what it was asked not to", "the answer has the content encoding %q", e))
	}
	r.framed = res.ContentLength >= 0 || len(res.TransferEncoding) > 0
	switch {
	case res.StatusCode == http.StatusOK:
		r.Size = res.ContentLength
		r.ranges = strings.EqualFold(strings.TrimSpace(res.Header.Get("Accept-Ranges")), "bytes")
	case res.StatusCode == http.StatusPartialContent && part:
		start, end, size, ok := contentRange(res.Header.Get("Content-Range"))
		if !ok || start != from || to >= 0 && end > to || res.ContentLength >= 0 && res.ContentLength != end-start {
			return bad(fmt.Errorf("%w: %q", errBadRange, res.Header.Get("Content-Range")))
		}
		r.from, r.Size, r.part, r.ranges = from, size, true, true
		r.b.limit = end - start
		r.framed = true
	case res.StatusCode == http.StatusRequestedRangeNotSatisfiable && part:
		_, _, size, _ := contentRange(res.Header.Get("Content-Range"))
		return bad(&pastEnd{fail(address, "", "the server says that the file has no byte %d (status 416)", from), size})
	default:
		return bad(status(address, res))
	}
	return r, nil
}

// contentRange reads "bytes 0-99/200" as 0, 100, 200. The size is -1 where
// there is a "*"; the range too, with ok false.
func contentRange(s string) (start, end, size int64, ok bool) {
	s, isBytes := strings.CutPrefix(s, "bytes ")
	span, total, _ := strings.Cut(s, "/")
	size, err := strconv.ParseInt(total, 10, 64)
	if err != nil || size < 0 || !isBytes {
		size = -1
	}
	a, b, _ := strings.Cut(span, "-")
	start, err1 := strconv.ParseInt(a, 10, 64)
	last, err2 := strconv.ParseInt(b, 10, 64)
	if err1 != nil || err2 != nil || !isBytes || start < 0 || last < start || last == 1<<63-1 || size >= 0 && last >= size || size < 0 && total != "*" {
		return -1, -1, size, false
	}
	return start, last + 1, size, true
}

// status words an answer that is no file.
func status(address string, res *http.Response) error {
	e := fail(address, "", "the server answered %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	// Hubs say more in a header of their own.
	if m := res.Header.Get("X-Error-Message"); m != "" {
		e.Found += fmt.Sprintf(": %.200q", m)
	}
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Hint = "the file may need a token (HF_TOKEN), or that you accept its terms on its web page; a hub also answers so for names that it does not have"
	case http.StatusProxyAuthRequired:
		e.Hint = "put the proxy's user and password in HTTPS_PROXY"
	case http.StatusNotFound, http.StatusGone:
		e.Hint = "check the address: owner, name, revision and file"
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		e.Hint = hintResume
		return &transient{e, true, retryAfter(res.Header.Get("Retry-After"))}
	}
	return e
}

func retryAfter(s string) time.Duration {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 86400 {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return time.Until(t)
	}
	return 0
}

// explain words an error of the line. What cannot get better by waiting is not
// transient.
func explain(address string, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // u would show the address that was redirected to, with its signature
	}
	e := fail(address, hintResume, "no answer")
	e.Err = err
	var cert *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errRedirects), errors.Is(err, errDowngrade), errors.Is(err, errScheme):
		e.Found, e.Hint = "the server sends us elsewhere", ""
		return e
	case errors.As(err, &cert):
		e.Found, e.Hint = "the server cannot prove that it is the one", "check the machine's clock and certificates; a proxy that looks into the traffic needs its certificate installed"
		return e
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) && dns.IsNotFound {
		e.Hint = "check the address and that this machine is online"
	}
	return &transient{err: e}
}

// body is the body of an answer. A line on which nothing, or next to nothing,
// comes is given up; time that the reader takes between two Reads is not
// counted.
type body struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	rc      io.ReadCloser
	address string
	limit   int64 // bytes that the server announced for this part, 0 for no limit
	n       int64 // bytes that came
	timer   *time.Timer
	stall   time.Duration
	left    time.Duration // until the line counts as stalled
	window  int           // bytes since left was full
}

var errStalled = errors.New("stalled")

// crawl is the number of bytes that must come in the time of a stall.
const crawl = 1024

func (b *body) Read(p []byte) (int, error) {
	if b.limit > 0 {
		if b.n == b.limit {
			return 0, io.EOF
		}
		p = p[:min(int64(len(p)), b.limit-b.n)]
	}
	start := time.Now()
	b.timer.Reset(b.left)
	n, err := b.rc.Read(p)
	b.timer.Stop()
	b.n += int64(n)
	if b.window += n; b.window >= crawl {
		b.window, b.left = 0, b.stall
	} else {
		b.left = max(b.left-time.Since(start), 1)
	}
	if err == io.EOF && b.n < b.limit {
		err = io.ErrUnexpectedEOF
	}
	if err == nil || err == io.EOF {
		return n, err
	}
	e := fail(b.address, hintResume, "the line broke")
	if context.Cause(b.ctx) == errStalled {
		e.Found = fmt.Sprintf("less than %d bytes came in %s", crawl, b.stall)
	} else if b.ctx.Err() != nil {
		return n, b.ctx.Err()
	} else {
		e.Err = err
	}
	return n, &transient{err: e}
}

func (b *body) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.rc.Close()
}
