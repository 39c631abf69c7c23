package expand

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"sync"

	"npack/pack"
	"npack/pack/native"
	"npack/ternary"
)

// checker holds the rules of the container and its sha256 while it passes by.
type checker struct {
	sha      hash.Hash
	rules    bool
	w        *io.PipeWriter // nil unless there is a check going on
	done     chan bool
	survey   *ternary.Survey
	mismatch error
	err      error
}

func newChecker(o *Options) *checker { return &checker{sha: sha256.New(), rules: !o.Unchecked} }

// start begins with a container of size bytes inside the file of that name.
func (c *checker) start(name string, size int64) {
	if !c.rules {
		return
	}
	r, w := io.Pipe()
	c.w, c.done = w, make(chan bool)
	go func() {
		defer close(c.done)
		c.survey, c.mismatch, c.err = native.Check(name, size, r)
		c.err, c.mismatch = inside(c.err), inside(c.mismatch)
		if c.err == nil {
			_, c.err = io.Copy(io.Discard, r)
		}
		r.CloseWithError(c.err)
	}()
}

// inside says that an error's offsets count in the container.
func inside(err error) error {
	p := (*pack.Error)(nil)
	if !errors.As(err, &p) {
		return err
	}
	e := *p
	e.Place = "decoded container: " + p.Place
	e.Hint = "fetch the file again; if its sha256 is the publisher's, the model in it is broken, and \"npack expand --no-check\" writes it all the same"
	return &e
}

// Write hands b to both at once: neither is to set the pace.
func (c *checker) Write(b []byte) (int, error) {
	var wg sync.WaitGroup
	wg.Go(func() { c.sha.Write(b) })
	var err error
	if c.w != nil {
		_, err = c.w.Write(b)
	}
	wg.Wait()
	return len(b), err
}

// end waits for the verdict.
func (c *checker) end() error {
	if c.w != nil {
		c.w.Close()
		<-c.done
	}
	return c.err
}

// abort ends the check where there will be no verdict.
func (c *checker) abort() {
	if c.w != nil {
		c.w.CloseWithError(context.Canceled)
		<-c.done
	}
}
