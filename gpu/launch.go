package gpu

import "math"

// launcher makes launches without allocating. After an error it does nothing
// more, so that a pass is checked once, at its end.
type launcher struct {
	dev Device
	l   Launch
	err error
}

// launch starts a kernel on a grid of x*y*z blocks.
func (r *launcher) launch(kernel string, x, y, z int, args ...Arg) {
	if r.err != nil {
		return
	}
	r.l.Kernel, r.l.Grid = kernel, [3]uint32{uint32(x), uint32(y), uint32(z)}
	r.l.Args = append(r.l.Args[:0], args...)
	r.err = r.dev.Launch(&r.l)
}

// i32 and f32 are arguments that are numbers.
func i32(v int) Arg     { return Arg{Val: uint64(uint32(int32(v)))} }
func f32(v float32) Arg { return Arg{Val: uint64(math.Float32bits(v))} }

// from returns a place that begins so many bytes later in the same buffer.
func (a Arg) from(bytes int) Arg { return Arg{a.Buf, a.Val + uint64(bytes)} }

// divUp is x/n, rounded up.
func divUp(x, n int) int { return (x + n - 1) / n }
