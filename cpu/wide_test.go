package cpu

import (
	"slices"
	"testing"

	"npack/runtime/backend"
	"npack/runtime/backend/backendtest"
	"npack/ternary/ternarytest"
)

// Only a few processors have a set with wide linears. These tests give them to the
// best set of any: they take the bytes of blocks of activations backwards and scratch
// of their own.

func TestWide(t *testing.T) {
	backendtest.Run(t, Backend{Kernel: withWide(t, "")})
}

// Passes over 4 and 5 columns read planes in place, though wide linears take the others.
func TestWideZeroCopy(t *testing.T) {
	b := inPlaceBackend
	b.Kernel = withWide(t, b.Kernel)
	for _, c := range backendtest.Cases(true) {
		m := ternarytest.Model(c.Spec)
		ids := backendtest.Text(&m.Config, 1)[:30]
		want := backendtest.Reference(t, m, c.Options, ids)
		in, err := b.Load(t.Context(), m, c.Options)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		for _, n := range []int{3, 4, 5, 6} {
			seq, err := in.NewSequence(len(ids))
			if err != nil {
				t.Fatal(err)
			}
			defer seq.Close()
			for i := 0; i < len(ids); i += n {
				run := backend.Run{Seq: seq, Tokens: ids[i:min(i+n, len(ids))]}
				for j := range run.Tokens {
					run.Want = append(run.Want, j)
				}
				run.Logits = make([]float32, len(run.Want)*m.Vocab)
				if err := in.Forward(t.Context(), []backend.Run{run}); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(run.Logits, want[i*m.Vocab:][:len(run.Logits)]) {
					t.Errorf("%s: in passes over %d columns the logits from column %d on differ", c.Name, n, i)
				}
			}
		}
	}
}

func TestWidePlan(t *testing.T) {
	withWide(t, "")
	TestPlan(t)
}

// withWide has a set's linears replaced in passes over 4 columns and more, until
// the test ends, and returns its name; "" is the best.
func withWide(t *testing.T, name string) string {
	k, err := choose(name)
	if err != nil {
		t.Fatal(err)
	}
	linears := k.linear
	t.Cleanup(func() { k.linear = linears })
	for p := 1; p <= 3; p++ {
		l, wide := *linears[p], *linears[p]
		wide.dot, wide.direct, wide.near = nil, 0, 1<<20
		wide.form = func(dst, x []int8, blocks int) int64 {
			formed, more := l.formOf(x[:blocks*p*blockCols])
			copy(dst, formed)
			reverseBlocks(dst[:blocks*l.formBytes], l.formBytes)
			return more
		}
		wide.many = func(sums []int32, w []byte, x []int8, blocks, columns, stride int, scratch []byte) {
			n := blocks * l.formBytes
			var plain []int8
			for c := range columns {
				plain = append(plain, x[c*stride:][:n]...)
			}
			reverseBlocks(plain, l.formBytes)
			l.many(sums, w, plain, blocks, columns, n, scratch[1000:])
		}
		wide.scratch = func(columns int) int { return 1000 + l.scratch(columns) }
		l.wide, l.wideFrom = &wide, 4
		if l.inPlace != nil {
			placed := *l.inPlace
			placed.direct = 5
			l.inPlace = &placed
		}
		k.linear[p] = &l
	}
	return k.name
}

func reverseBlocks(x []int8, size int) {
	for block := range slices.Chunk(x, size) {
		slices.Reverse(block)
	}
}
