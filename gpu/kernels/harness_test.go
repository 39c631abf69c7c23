package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"npack/gpu"
	"npack/gpu/kernels"
	"npack/gpu/ptx"
)

// card is a device with one of the committed texts and helpers around it.
type card struct {
	*ptx.Device
	t    testing.TB
	only string // if set, the one kernel that matters
}

// wants reports whether a check should run a kernel.
func (c *card) wants(kernel string) bool { return c.only == "" || c.only == kernel }

// texts runs a check with each committed PTX text.
func texts(t *testing.T, check func(t testing.TB, c *card, capability int)) {
	for _, capability := range []int{70, 80} {
		t.Run(fmt.Sprintf("sm_%d", capability), func(t *testing.T) {
			t.Parallel()
			d, err := ptx.New(capability)
			if err != nil {
				t.Fatal(err)
			}
			check(t, &card{Device: d, t: t}, capability)
			if d.Subnormals != 0 {
				t.Errorf("%d subnormal numbers", d.Subnormals)
			}
		})
	}
}

// word is what buffers hold.
type word interface{ ~uint32 | ~int32 | ~float32 }

func bits[T word](v T) uint32 {
	switch v := any(v).(type) {
	case float32:
		return math.Float32bits(v)
	case int32:
		return uint32(v)
	}
	return any(v).(uint32)
}

// upload makes a buffer of v.
func upload[T word](c *card, v []T) gpu.Arg {
	p := make([]byte, 0, 4*len(v))
	for _, x := range v {
		p = binary.LittleEndian.AppendUint32(p, bits(x))
	}
	return c.bytes(p)
}

func (c *card) bytes(p []byte) gpu.Arg {
	b, err := c.Alloc(int64(len(p)))
	if err == nil {
		err = c.Upload(b, 0, p)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return gpu.Arg{Buf: b}
}

// room makes a buffer of n words that nothing was written to.
func (c *card) room(n int) gpu.Arg {
	b, err := c.Alloc(int64(4 * n))
	if err != nil {
		c.t.Fatal(err)
	}
	return gpu.Arg{Buf: b}
}

func (c *card) words(a gpu.Arg) []uint32 {
	p := make([]byte, a.Buf.Size)
	if err := c.Download(p, a.Buf, 0); err != nil {
		c.t.Fatal(err)
	}
	w := make([]uint32, len(p)/4)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(p[4*i:])
	}
	return w
}

func (c *card) floats(a gpu.Arg) []float32 {
	w := c.words(a)
	f := make([]float32, len(w))
	for i, v := range w {
		f[i] = math.Float32frombits(v)
	}
	return f
}

// free gives the buffers among args back.
func (c *card) free(args ...gpu.Arg) {
	for _, a := range args {
		if a.Buf != (gpu.Buffer{}) {
			c.Free(a.Buf)
		}
	}
}

func num(v int) gpu.Arg        { return gpu.Arg{Val: uint64(uint32(int32(v)))} }
func real32(v float32) gpu.Arg { return gpu.Arg{Val: uint64(math.Float32bits(v))} }

func (c *card) launch(kernel string, x, y, z int, args ...gpu.Arg) {
	c.t.Helper()
	if err := c.Launch(&gpu.Launch{Kernel: kernel, Grid: [3]uint32{uint32(x), uint32(y), uint32(z)}, Args: args}); err != nil {
		c.t.Fatal(err)
	}
}

// equal compares bit patterns.
func equal[T word](t testing.TB, what string, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if bits(got[i]) != bits(want[i]) {
			t.Fatalf("%s: value %d is %v (%#08x), want %v (%#08x)", what, i, got[i], bits(got[i]), want[i], bits(want[i]))
		}
	}
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// packDigits is the layout of digits (layout.go) in plain Go: q is [columns][cols].
func packDigits(q [][]int32, planes, tiles int) []uint32 {
	w := make([]uint32, kernels.DigitsBytes(len(q), planes, tiles)/4)
	for col, v := range q {
		for c, n := range v {
			tile, k := c/256, c%256
			step, t, h, j := k/128*4+k%4, k/32%4, k/16%2, k/4%4
			for p := range planes {
				slot := col*planes + p
				at := (((slot/8*tiles+tile)*4+step/2)*32+slot%8*4+t)*4 + step%2*2 + h
				digit := int8(n)
				w[at] |= uint32(uint8(digit)) << (8 * j)
				n = (n - int32(digit)) >> 8
			}
		}
	}
	return w
}

// packBits is the layout of bits.
func packBits(q [][]int32, planes, tiles int) []uint32 {
	w := make([]uint32, kernels.BitsBytes(len(q), planes, tiles)/4)
	for col, v := range q {
		for c, n := range v {
			tile, k := c/256, c%256
			for b := range 8 * planes {
				at := (((col*tiles+tile)*planes+b/8)*32+b%8*4+k/32%4)*2 + k/128
				w[at] |= uint32(n) >> b & 1 << (k % 32)
			}
		}
	}
	return w
}

// limit is the largest fixed-point value of a number of planes (NUMERICS.md, 3).
func limit(planes int) int32 { return [4]int32{0, 127, 32639, 8355711}[planes] }

func add(x, y float32) float32 { return float32(x + y) }
func sub(x, y float32) float32 { return float32(x - y) }
func mul(x, y float32) float32 { return float32(x * y) }
