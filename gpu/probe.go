package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"npack/gpu/kernels"
	"npack/runtime/backend"
	"npack/runtime/reference"
)

// ErrDiffers is wrapped when a device computes a bit otherwise than NUMERICS.md
// asks: its text would fork from that of other backends somewhere.
var ErrDiffers = errors.New("the card computes other bits than it should")

// prove compares what the device computes with the definition, on the user's own
// card: single operations first, then whole forward passes of small models in all
// ways that a pass can run. It takes some milliseconds. The error has in one line
// all that a report needs.
func (b *Backend) prove() error {
	var differ []string
	for _, p := range probes {
		line, err := b.operation(&p)
		if err != nil {
			return fmt.Errorf("probing %s: %w", b.info.Name, err)
		}
		if line != "" {
			differ = append(differ, line)
		}
	}
	for _, m := range tinyModels {
		line, err := b.tiny(&m)
		if err != nil {
			return fmt.Errorf("probing %s: %w", b.info.Name, err)
		}
		if line != "" {
			differ = append(differ, line)
		}
	}
	if differ == nil {
		return nil
	}
	return fmt.Errorf("%s, sm_%d, driver %s, numerics %d: %w: %s", b.info.Name, b.info.Capability, b.info.Driver, backend.NumericsVersion, ErrDiffers, strings.Join(differ, "; "))
}

// probe is an operation of the kernel of that name, with its operands: each is
// drawn between two values or, for integers, from all bits.
type probe struct {
	name     string
	op       int
	low      float32 // smallest and
	high     float32 // largest magnitude of a; 0: any bits
	positive bool
	edges    []uint32 // more values of a
}

// probeValues is the number of values that each probe tries.
const probeValues = 512

var probes = []probe{
	{"a*b+c in two roundings", kernels.ProbeMulAdd, 0x1p-40, 0x1p40, false, nil},
	{"recip", kernels.ProbeRecip, 0x1p-60, 0x1p60, true, nil},
	{"rsqrt", kernels.ProbeRSqrt, 0x1p-60, 0x1p60, true, nil},
	{"exp", kernels.ProbeExp, 0x1p-31, 39, false, floatBits(0, -30, -29.999998, -31, -0x1p-30, 0x1p-30, -0x1p-31, 40, -1e9)},
	{"silu", kernels.ProbeSiLU, 0x1p-20, 60, false, floatBits(0, -40, -39.999996, -41, 1e9, -1e9)},
	{"integer to float", kernels.ProbeI64, 0, 0, false, []uint32{0, 1, 0x80000000, 0xffffffff, 0x7fffffff}},
	{"dp4a", kernels.ProbeDP4A, 0, 0, false, []uint32{0, 0x80808080, 0x7f7f7f7f, 0xffffffff, 0x807f807f}},
	{"to half", kernels.ProbeToHalf, 0x1p-26, 0x1p17, false, floatBits(0, 65504, 65519.996, 65520, 0x1p-24, 0x1p-25, 0x1.8p-24, 0x1.8p-25, 1+0x1p-11, 1+0x1.8p-10, -2048-1)},
	{"from half", kernels.ProbeFromHalf, 0, 0, false, []uint32{0, 1, 0x3ff, 0x400, 0x7bff, 0x8001, 0xfbff}},
	{"round", kernels.ProbeRound, 0x1p-3, 0x1p23, false, floatBits(0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 8355711.5, -8355710.5)},
	{"keep", kernels.ProbeKeep, 0x1p-55, 0x1p-45, false, floatBits(0x1p-50, -0x1p-50, 0x1.fffffep-51, 0)},
}

func floatBits(x ...float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		b[i] = math.Float32bits(v)
	}
	return b
}

// operands returns what p is tried with: a, b and c, one after the other.
func (p *probe) operands() (v [3][probeValues]uint32) {
	rng := rand.New(rand.NewPCG(uint64(p.op), 1))
	float := func(low, high float64, positive bool) uint32 { // even over magnitudes
		x := math.Float32bits(float32(low * math.Pow(high/low, rng.Float64())))
		x = x&^0xffff | rng.Uint32()&0xffff
		if !positive {
			x |= rng.Uint32() & (1 << 31)
		}
		return x
	}
	for i := range probeValues {
		switch {
		case i < len(p.edges):
			v[0][i] = p.edges[i]
		case p.high != 0:
			v[0][i] = float(float64(p.low), float64(p.high), p.positive)
		default:
			v[0][i] = rng.Uint32()
		}
		v[1][i], v[2][i] = rng.Uint32(), rng.Uint32()
		switch p.op {
		case kernels.ProbeMulAdd: // c near -a*b: what a fused operation keeps shows
			v[1][i] = float(0x1p-10, 0x1p10, false)
			v[2][i] = math.Float32bits(-math.Float32frombits(v[0][i])*math.Float32frombits(v[1][i])) + rng.Uint32N(8)
		case kernels.ProbeI64: // sums of linears are below 2^38
			v[1][i] = uint32(int32(v[1][i]) >> 25)
		case kernels.ProbeDP4A:
			v[2][i] = uint32(int32(v[2][i]) >> 4)
		case kernels.ProbeFromHalf: // finite ones
			v[0][i] &= 0xfbff
		}
	}
	return v
}

// Operate is the definition of the kernel probe: op on the bits of its operands.
func Operate(op int, a, b, c uint32) uint32 {
	x := math.Float32frombits(a)
	switch op {
	case kernels.ProbeMulAdd:
		return math.Float32bits(float32(float32(x*math.Float32frombits(b)) + math.Float32frombits(c)))
	case kernels.ProbeRecip:
		return math.Float32bits(reference.Recip(x))
	case kernels.ProbeRSqrt:
		return math.Float32bits(reference.RSqrt(x))
	case kernels.ProbeExp:
		return math.Float32bits(reference.Exp(x))
	case kernels.ProbeSiLU:
		return math.Float32bits(reference.SiLU(x))
	case kernels.ProbeI64:
		return math.Float32bits(float32(int64(uint64(b)<<32 | uint64(a))))
	case kernels.ProbeDP4A:
		for i := 0; i < 32; i += 8 {
			c += uint32(int32(int8(a>>i)) * int32(int8(b>>i)))
		}
		return c
	case kernels.ProbeToHalf:
		return uint32(reference.F32toF16(x))
	case kernels.ProbeFromHalf:
		return math.Float32bits(reference.F16toF32(uint16(a)))
	case kernels.ProbeRound:
		return uint32(int32(math.RoundToEven(float64(x))))
	case kernels.ProbeKeep:
		return math.Float32bits(reference.Keep(x, 50))
	}
	panic("gpu: a probe without a definition")
}

// operation runs a probe and returns a line about what differs, or "".
func (b *Backend) operation(p *probe) (line string, err error) {
	v := p.operands()
	got := make([]byte, 4*probeValues)
	err = b.do(func() error {
		buf, err := b.alloc(4 * int64(len(got)))
		if err != nil {
			return err
		}
		defer b.free(&buf)
		host := make([]byte, 0, 3*len(got))
		for i := range v {
			for _, x := range v[i] {
				host = binary.LittleEndian.AppendUint32(host, x)
			}
		}
		if err := b.dev.Upload(buf, 0, host); err != nil {
			return err
		}
		at := Arg{Buf: buf}
		r := launcher{dev: b.dev}
		r.launch("probe", divUp(probeValues, 128), 1, 1, at, at.from(len(got)), at.from(2*len(got)), at.from(3*len(got)), i32(probeValues), i32(p.op))
		if r.err != nil {
			return r.err
		}
		return b.dev.Download(got, buf, 3*int64(len(got)))
	})
	if err != nil {
		return "", err
	}
	wrong := 0
	for i := range probeValues {
		x, y, z := v[0][i], v[1][i], v[2][i]
		g, want := binary.LittleEndian.Uint32(got[4*i:]), Operate(p.op, x, y, z)
		if g == want {
			continue
		}
		if wrong++; wrong == 1 {
			line = fmt.Sprintf("%s of %08x %08x %08x is %08x, not %08x", p.name, x, y, z, g, want)
		}
	}
	if wrong > 1 {
		line += fmt.Sprintf(" (%d of %d)", wrong, probeValues)
	}
	return line, nil
}
