package kernels_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"npack/gpu/kernels"
	"npack/gpu/ptx"
)

// A mutant is a committed kernel with one fault planted in its text. Each must be
// caught: refused, stopped by the interpreter, or seen in its results.

// checksOf are the checks that concern a kernel, and the kernels that they launch
// beside it.
func checksOf(kernel string) (checks []func(t testing.TB, c *card, capability int), beside []string) {
	type list = []func(t testing.TB, c *card, capability int)
	switch {
	case kernel == "norm_quant":
		return list{checkNormSums, checkNormQuant, checkFaults}, nil
	case kernel == "quant":
		return list{checkQuant, checkFaults}, nil
	case strings.HasPrefix(kernel, "tern_"):
		return list{checkLinears, checkMiddle}, nil
	case kernel == "embed" || strings.HasPrefix(kernel, "head_"):
		return list{checkTable}, nil
	case strings.HasPrefix(kernel, "heads_"):
		return list{checkHeads, checkHeadsFaults}, nil
	case strings.HasPrefix(kernel, "attn_"):
		return list{checkAttention, checkAttentionFault, checkJoinMany}, []string{"attn_f32", "attn_join"}
	case kernel == "probe":
		return list{checkProbe}, nil
	}
	return list{checkChoice}, []string{"argmax", "argmax_join", "topk"}
}

// witness is a testing.TB that stops at the first failure and remembers it.
type witness struct {
	testing.TB
	failure string
}

func (w *witness) Helper() {}
func (w *witness) Fatal(args ...any) {
	w.failure = fmt.Sprint(args...)
	panic(w)
}
func (w *witness) Fatalf(format string, args ...any) { w.Fatal(fmt.Sprintf(format, args...)) }
func (w *witness) Errorf(format string, args ...any) { w.Fatal(fmt.Sprintf(format, args...)) }
func (w *witness) Error(args ...any)                 { w.Fatal(args...) }

// entry returns one kernel of a text, from .visible to the closing brace.
func entry(t testing.TB, text, kernel string) string {
	from := strings.Index(text, ".visible .entry "+kernel+"(")
	if from < 0 {
		t.Fatalf("no kernel %s", kernel)
	}
	return text[from : from+strings.Index(text[from:], "\n}\n")+3]
}

// caught returns how a mutant of a kernel is caught, or "".
func caught(t testing.TB, capability int, text, kernel, mutant string) (how string) {
	checks, beside := checksOf(kernel)
	for _, k := range beside {
		if k != kernel {
			mutant += entry(t, text, k)
		}
	}
	d, err := ptx.Load(mutant)
	if err != nil {
		return err.Error()
	}
	w := &witness{TB: t}
	defer func() {
		if r := recover(); r != nil && r != w {
			panic(r)
		}
		how = w.failure
	}()
	for _, check := range checks {
		check(w, &card{Device: d, t: w, only: kernel}, capability)
	}
	if d.Subnormals != 0 {
		w.Fatal("subnormal numbers")
	}
	return ""
}

var barrier = regexp.MustCompile(`bar\.sync\s+0;`)

// first is the first group of a match.
const first = "$1"

// planted are single faults, by regular expression; the first match is replaced.
var planted = []struct{ name, kernel, find, replace string }{
	{"a product not rounded on its own", "quant", `mul\.rn\.f32`, "mul.f32"},
	{"a sum flushed", "norm_quant", `add\.rn\.f32`, "add.rn.ftz.f32"},
	{"another order of a fold", "norm_quant", `(mov\.b32\s+%r\d+, )16;`, first + "8;"},
	{"another order of a fold", "attn_f16", `(mov\.b32\s+%r\d+, )8;`, first + "4;"},
	{"a product left out", "tern_dot", `dp4a\.s32\.s32 (%r\d+), %r\d+, %r\d+, (%r\d+);`, "mov.u32 $1, $2;"},
	{"a product left out", "head_dot", `dp4a\.s32\.s32 (%r\d+), %r\d+, %r\d+, (%r\d+);`, "mov.u32 $1, $2;"},
	{"rows of a fragment exchanged", "tern_mma", `(mma\S+ \{[^}]*\}, )\{(%r\d+), (%r\d+),`, first + "{$3, $2,"},
	{"rows of a fragment exchanged", "tern_many", `(mma\S+ \{[^}]*\}, )\{(%r\d+), (%r\d+),`, first + "{$3, $2,"},
	{"rows of a fragment exchanged", "head_mma", `(mma\S+ \{[^}]*\}, )\{(%r\d+), (%r\d+),`, first + "{$3, $2,"},
	{"columns of a fragment exchanged", "tern_bits", `(mma\S+ \{[^}]*\}, \{[^}]*\}, )\{(%r\d+), (%r\d+)\}`, first + "{$3, $2}"},
	{"a weight's sign", "tern_dot", `16711936`, "131328"},
	{"a result read past the cache of what is constant", "tern_dot", `ld\.global\.f32`, "ld.global.nc.f32"},
	{"a maximum not atomic", "attn_join", `red\.global\.max\.u32`, "st.global.u32"},
	{"a maximum not atomic", "tern_bits", `red\.global\.max\.u32`, "st.global.u32"},
	{"a fault not atomic", "heads_f16", `red\.global\.min\.s32`, "st.global.u32"},
	{"one position less", "attn_f32", `(min\.u32\s+%r\d+, %r\d+, )64;`, first + "63;"},
	{"one lane without a barrier", "argmax", `bar\.sync\s+0;`, "setp.eq.u32 %p1, %tid.x, 7; @%p1 bra $$SKIP; bar.sync 0; $$SKIP:"},
	{"a shuffle in a branch", "topk", `shfl\.sync[^;]*;`, "setp.gt.u32 %p1, %tid.x, 7; @%p1 bra $$SKIP; $0 $$SKIP:"},
	{"past the end of shared memory", "heads_i8", `(st\.shared\.f32\s+\[%r?d?\d+)\]`, first + "+4096]"},
	{"between two words", "embed", `(ld\.global\.nc\.u32\s+%r\d+, \[%rd\d+)\]`, first + "+2]"},
	{"the next word", "embed", `(ld\.global\.nc\.u32\s+%r\d+, \[%rd\d+)\]`, first + "+4]"},
	{"past the end of a buffer", "attn_join", `(ld\.global\.nc\.f32\s+%f\d+, \[%rd\d+)\]`, first + "+1048576]"},
	{"a lane's smallest id", "argmax_join", `setp\.lt\.u32`, "setp.gt.u32"},
	{"shared memory not written", "attn_i8", `st\.shared\.v4\.f32[^;]*;`, ""},
}

// TestMutants takes out every barrier of every kernel, and plants the faults above.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	text, err := kernels.PTX(80)
	if err != nil {
		t.Fatal(err)
	}
	list, err := kernels.List(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range list {
		body := entry(t, text, k.Name)
		for i, at := range barrier.FindAllStringIndex(body, -1) {
			t.Run(fmt.Sprintf("%s/barrier %d", k.Name, i), func(t *testing.T) {
				t.Parallel()
				survives(t, text, k.Name, body[:at[0]]+body[at[1]:])
			})
		}
	}
	for _, p := range planted {
		t.Run(p.kernel+"/"+p.name, func(t *testing.T) {
			t.Parallel()
			body, find := entry(t, text, p.kernel), regexp.MustCompile(p.find)
			at := find.FindStringSubmatchIndex(body)
			if at == nil {
				t.Fatalf("%q is not in the kernel", p.find)
			}
			survives(t, text, p.kernel, body[:at[0]]+string(find.ExpandString(nil, p.replace, body, at))+body[at[1]:])
		})
	}
}

func survives(t *testing.T, text, kernel, mutant string) {
	t.Helper()
	how := caught(t, 80, text, kernel, mutant)
	if how == "" {
		t.Error("not seen")
	}
	t.Log(how)
}

// TestConstants compares the large numbers in the texts with those that are meant to be
// there. One that is off by little gives other bits so seldom that no sample shows it.
func TestConstants(t *testing.T) {
	meant := map[uint32]string{
		0x7EF311C7: "recip seed", 0x5F3759DF: "rsqrt seed", 0x3FB8AA3B: "log2e", 0x3F318000: "ln2_hi", 0xB95E8083: "ln2_lo",
		0x39506967: "exp c0", 0x3AB743CE: "exp c1", 0x3C088908: "exp c2", 0x3D2AA9C1: "exp c3", 0x3E2AAAAA: "exp c4", 0x3F000000: "exp c5",
		0x3C010204: "1/127", 0x3727C5AC: "1e-5", 0x42FE0000: "127", 0x4B400000: "1.5*2^23, which rounds to whole numbers",
		0x3F800000: "1", 0x3FC00000: "1.5", 0x3E800000: "1/4", 0xC1F00000: "-30", 0xC2200000: "-40",
		0x30800000: "2^-30", 0x2B800000: "2^-40", 0x26800000: "2^-50", 0x477FF000: "65520", 0x7F800000: "infinity", 0x7F7FFFFF: "the largest f32",
		8355711: "limit of three digits", 0x00808080: "128 in three digits", 0x11111111: "bit 0 of nibbles", 0x22222222: "bit 1", 0x44444444: "bit 2", 0x88888888: "bit 3",
		0x00FF0100: "bytes 0, 1, -1", 0x80000000: "sign", 0x7FFFFFFF: "all but the sign", 0xFFFFFFFF: "no id", 0xFF000000: "the last byte",
		0x00FF0000: "byte 2", 0x40000000: "2", 0x477FEFFF: "65520, for the comparison >", 0x7E000000: "sum of two exponents' offsets",
		0x3FFFFFF0: "index", 0x0FFFFFFC: "index", 0x00FFFFFE: "index", 0x7FFFFFF8: "index",
	}
	found := regexp.MustCompile(`[ ,](-?\d{6,})[,;]|0f([0-9A-F]{8})`)
	texts(t, func(t testing.TB, c *card, capability int) {
		text, err := kernels.PTX(capability)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range found.FindAllStringSubmatch(text, -1) {
			v, err := strconv.ParseInt(m[1], 10, 64)
			if m[1] == "" {
				var bits uint64
				bits, err = strconv.ParseUint(m[2], 16, 32)
				v = int64(bits)
			}
			if err != nil {
				t.Fatal(err)
			}
			if meant[uint32(v)] == "" && v != 0 {
				t.Errorf("%s (%#08x): nothing of NUMERICS.md", strings.Trim(m[0], " ,;"), uint32(v))
			}
		}
	})
}
