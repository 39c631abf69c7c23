package kernels_test

import (
	"testing"

	"npack/gpu"
	"npack/gpu/kernels"
	"npack/gpu/ptx"
	"npack/ternary"
)

// TestCounts counts what the linears carry out for a strip of 16 rows and 4,096 columns,
// the bytes of weights that they load and the instructions of a thread for each
// weight, as docs/gpu.md has them. What a kernel loads of weights is what there is.
func TestCounts(t *testing.T) {
	const rows, cols = 16, 4096
	for _, run := range []struct {
		capability, n, planes int
		kernel                string
	}{
		{70, 1, 3, "tern_dot"}, {80, 1, 3, "tern_bits"}, {80, 1, 1, "tern_bits"}, {80, 1, 3, "tern_mma"}, {80, 8, 3, "tern_mma"}, {80, 24, 3, "tern_many"},
		{80, 1, 3, "head_dot"}, {80, 8, 3, "head_mma"},
	} {
		d, err := ptx.New(run.capability)
		if err != nil {
			t.Fatal(err)
		}
		c := &card{Device: d, t: t}
		r := random(1)
		q := randomColumns(r, run.n, cols, run.planes)
		strips, tiles := kernels.Strips(rows), kernels.Tiles(cols)
		xs := make([]float32, run.n)
		y, amax := c.room(run.n*rows), c.room(run.n)
		bits := int64(3)
		if run.kernel[:4] == "head" {
			bits = 8
			table := randomTable(r, rows, cols)
			packed := make([]byte, kernels.TableBytes(strips, tiles))
			kernels.PackTable(packed, table, 0)
			c.launch(run.kernel, 1, 1, 1, c.bytes(packed), upload(c, table.Scale), upload(c, packDigits(q, run.planes, tiles)), upload(c, xs), y,
				num(tiles), num(strips), num(rows), num(run.n), num(rows), num(run.planes))
		} else {
			w, s, bias := c.matrix([]*ternary.Matrix{randomMatrix(r, rows, cols, "")}, []kernels.Place{kernels.Whole}, strips)
			x := packDigits(q, run.planes, tiles)
			if run.kernel == "tern_bits" {
				x = packBits(q, run.planes, tiles)
			}
			c.launch(run.kernel, 1, 1, 1, w, s, bias, upload(c, x), upload(c, xs), y, amax,
				num(tiles), num(strips), num(rows), num(run.n), num(rows), num(run.planes), num(0))
		}
		var threads, loaded int64
		for _, k := range c.Counts(run.kernel) {
			threads += k.Threads
			if k.Op == "ld.global.cs.nc.v4.u32" {
				loaded = 16 * k.Threads
			}
		}
		if want := bits * rows * cols / 8; loaded != want {
			t.Errorf("%s loads %d bytes of weights, there are %d", run.kernel, loaded, want)
		}
		t.Logf("%-9s %2d columns of %d planes: %.2f instructions a weight, %.2f a weight and column", run.kernel, run.n, run.planes,
			float64(threads)/(rows*cols), float64(threads)/float64(rows*cols*run.n))
	}
}

// TestCountsAttention counts a layer's attention at decode in the 8B's shape, for each
// key/value element that is read.
func TestCountsAttention(t *testing.T) {
	const heads, kvHeads, dim, positions = 32, 8, 128, 1024
	d, err := ptx.New(80)
	if err != nil {
		t.Fatal(err)
	}
	c := &card{Device: d, t: t}
	zeros := func(n int) gpu.Arg { return upload(c, make([]float32, n)) }
	pos, part, po := upload(c, []int32{positions - 1}), c.room(positions/64*heads*2), c.room(positions/64*heads*dim)
	c.launch("attn_f16", positions/64, kvHeads, 1, zeros(heads*dim), zeros(positions*2*kvHeads*dim/2), gpu.Arg{}, pos, part, po, zeros(1),
		num(heads), num(kvHeads), num(dim), num(0), num(positions/64), real32(0.1), num(0))
	c.launch("attn_join", heads, 1, 1, part, po, pos, c.room(heads*dim), zeros(1), num(heads), num(dim), num(0), num(positions/64), num(heads*dim))
	for _, kernel := range []string{"attn_f16", "attn_join"} {
		var threads int64
		for _, k := range c.Counts(kernel) {
			threads += k.Threads
		}
		t.Logf("%-9s %.2f instructions an element", kernel, float64(threads)/(positions*2*kvHeads*dim))
	}
}
