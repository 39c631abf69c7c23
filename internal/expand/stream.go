package expand

import (
	"context"
	"io"

	"npack/pack/coded"
)

// Stream expands the transport of that name, which r gives from its first
// byte, into w. size is its length, 0 if not known. w may be nil, to verify
// only. The container is right if and only if the error is nil: w has taken
// bytes that were not verified otherwise.
func Stream(ctx context.Context, name string, size int64, r io.Reader, w io.Writer, o Options) (*Result, error) {
	h, err := coded.ReadHeader(name, r)
	if err != nil {
		return nil, err
	}
	if err := checkSize(name, h, o.Want); err != nil {
		return nil, err
	}
	c := newChecker(&o)
	c.start(name, h.SourceSize)
	defer c.abort()
	res := new(Result)
	err = coded.Decode(ctx, h, r, w, coded.DecodeOptions{Name: name, Size: size, Threads: o.Threads, Check: c,
		Done: func(d coded.Done) {
			res.CodedBytes = d.Mark.Coded
			if o.Progress != nil {
				o.Progress(d.Mark.Source, h.SourceSize)
			}
		}})
	if err != nil {
		return nil, err
	}
	return res, res.finish(c, name, h.SourceSize, o.Want)
}
