package expand

import (
	"context"
	"io"

	"npack/pack"
	"npack/pack/coded"
)

// Packed unpacks the packed form (t5q) of that name and length in src into w,
// which has taken bytes that were not verified unless the error is nil. There
// is no MD5 in this form: the container's rules and o.Want are all there is.
func Packed(ctx context.Context, name string, src io.ReaderAt, size int64, w io.Writer, o Options) (*Result, error) {
	whole, err := coded.UnpackedSize(name, src, size)
	if err != nil {
		return nil, err
	}
	if p := o.Want; p != nil && p.Bytes >= 0 && p.Bytes != whole {
		return nil, errOtherModel(&pack.Error{File: name, Offset: -1}, whole, p)
	}
	c := newChecker(&o)
	c.start(name, whole)
	defer c.abort()
	out := &counter{w: io.MultiWriter(w, c), total: whole, progress: o.Progress}
	if err := coded.Unpack(ctx, name, src, size, out); err != nil {
		return nil, err
	}
	r := &Result{CodedBytes: size}
	return r, r.finish(c, name, whole, o.Want)
}

// counter tells how many bytes have passed.
type counter struct {
	w           io.Writer
	done, total int64
	progress    func(done, total int64)
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.done += int64(n)
	if c.progress != nil {
		c.progress(c.done, c.total)
	}
	return n, err
}
