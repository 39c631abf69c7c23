// Package fetch brings files from HTTP servers over lines that drop, from
// servers that do not do what they say. [Client.File] brings a file to a disk
// over several connections and goes on where an earlier run ended;
// [Client.Open] reads one in order through any number of connections.
//
// Nothing that a server says is believed for longer than it can be checked:
// ranges are compared with what was asked, sizes with what came, validators
// (RFC 9110 §8.8) with those of the first answer. Errors are [*pack.Error] of
// kind [pack.ErrNetwork] where the server or the line is to blame.
package fetch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"npack/pack"
)

// Options say how a Client behaves. Zero values stand for the defaults.
type Options struct {
	UserAgent string

	// Token is sent, as a bearer, to Origin ("https://host[:port]") and to
	// nobody else: not where that server redirects to, not over plain HTTP.
	Token  string
	Origin string

	Stall       time.Duration // silence after which a connection is given up; 30 s
	Retries     int           // failures in a row that end a transfer; 8
	Backoff     time.Duration // before the first retry, doubled for each next; 500 ms
	Connections int           // of one file at most; 4
	Segment     int64         // bytes that a connection asks for at a time, where there are several; 32 MiB
}

// Client fetches. It may be used by several goroutines.
type Client struct {
	o    Options
	http http.Client
}

// New returns a client. The usual variables name a proxy: HTTPS_PROXY,
// HTTP_PROXY, NO_PROXY.
func New(o Options) *Client {
	o.Stall = or(o.Stall, 30*time.Second)
	o.Retries = or(o.Retries, 8)
	o.Backoff = or(o.Backoff, 500*time.Millisecond)
	o.Connections = or(o.Connections, 4)
	o.Segment = or(o.Segment, 32<<20)
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: o.Stall}).DialContext,
		TLSHandshakeTimeout:    o.Stall,
		ResponseHeaderTimeout:  o.Stall,
		IdleConnTimeout:        time.Minute,
		MaxIdleConnsPerHost:    o.Connections,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // sizes and ranges count in the file's own bytes
		Protocols:              new(http.Protocols),
	}
	// HTTP/2 would put all our connections into one.
	t.Protocols.SetHTTP1(true)
	c := &Client{o: o}
	c.http = http.Client{Transport: &authorized{o, t}, CheckRedirect: checkRedirect}
	return c
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// authorized adds the token, request by request. A header of the first request
// would follow redirects to other ports and subdomains.
type authorized struct {
	o    Options
	next http.RoundTripper
}

func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.o.Token != "" && strings.EqualFold(r.URL.Scheme+"://"+r.URL.Host, a.o.Origin) && (r.URL.Scheme == "https" || isLoopback(r.URL.Hostname())) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+a.o.Token)
	}
	return a.next.RoundTrip(r)
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

var (
	errRedirects = errors.New("redirected more than 10 times")
	errDowngrade = errors.New("redirected from https to plain http")
	errScheme    = errors.New("redirected to an address that is neither http nor https")
)

func checkRedirect(r *http.Request, via []*http.Request) error {
	switch {
	case len(via) > 10:
		return errRedirects
	case r.URL.Scheme != "https" && r.URL.Scheme != "http":
		return errScheme
	case r.URL.Scheme == "http" && via[len(via)-1].URL.Scheme == "https":
		return errDowngrade
	}
	return nil
}

// Public returns an address without what may be secret in it: user, password
// and query, in which signed addresses carry their signature.
func Public(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "address"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// Key tells an address from others without what may be secret in it.
func Key(address string) string {
	sum := sha256.Sum256([]byte(address))
	return fmt.Sprintf("%s %x", Public(address), sum[:8])
}

// fail returns an error of a server or the line to it.
func fail(address, hint, format string, args ...any) *pack.Error {
	return &pack.Error{Kind: pack.ErrNetwork, File: Public(address), Offset: -1, Found: fmt.Sprintf(format, args...), Hint: hint}
}

// transient is a failure that another try may mend.
type transient struct {
	err    *pack.Error
	answer bool          // the server said so itself
	wait   time.Duration // what it asks for
}

func (t *transient) Error() string { return t.err.Error() }
func (t *transient) Unwrap() error { return t.err }

// tries counts failures in a row.
type tries struct {
	c      *Client
	n      int
	answer bool // the server has answered before
	worked bool // the last connection was a success
	got    int64
}

// enough is how many bytes make a connection count as a success. Fewer, and a
// server could keep a client for ever with a byte a connection.
const enough = 64 << 10

// progress notes that n bytes came.
func (t *tries) progress(n int64) {
	t.answer = true
	if t.got += n; t.got >= enough {
		t.got, t.n, t.worked = 0, 0, true
	}
}

// again waits before the next try, or returns err if there should be none.
func (t *tries) again(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var tr *transient
	if !errors.As(err, &tr) {
		return err
	}
	t.n++
	t.answer = t.answer || tr.answer
	limit := t.c.o.Retries
	if !t.answer {
		limit = min(limit, 3) // a wrong name or port: say so soon
	}
	if t.n >= limit {
		e := *tr.err
		if t.n > 1 {
			e.Found += fmt.Sprintf(" (%d tries)", t.n)
		}
		if !t.answer {
			e.Hint = "check the address and that this machine is online"
		}
		return &e
	}
	wait := min(t.c.o.Backoff<<(t.n-1), 30*time.Second)
	if t.worked {
		t.worked, wait = false, 0 // a line that drops now and then
	}
	timer := time.NewTimer(max(wait, min(tr.wait, time.Minute)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hintResume is for failures that leave a part behind.
const hintResume = "what came is kept: run the same command again to go on from there"
