package coded

import (
	"context"
	"io"
)

// Source returns the container inside a transport for reading at any place. Of
// each block that is touched all is decoded; the last stays in memory. It is
// for a few bytes here and there, in blocks of up to 256 MiB, and for one
// goroutine.
func (x *Index) Source(ctx context.Context) io.ReaderAt {
	return &lazySource{x: x, ctx: ctx, block: -1}
}
