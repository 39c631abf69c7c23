package cpu

import (
	"context"
	"errors"
	"testing"

	"npack/runtime/backend"
	"npack/runtime/backend/backendtest"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

func TestZeroCopyConformance(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		if !k.worksInPlace() {
			t.Skip("has no kernels for planes in place, or this processor lacks GFNI")
		}
		backendtest.Run(t, Backend{Kernel: k.name, ZeroCopy: true})
	})
}

// inPlaceBackend is one that works on every machine.
var inPlaceBackend = Backend{Kernel: "generic", ZeroCopy: true}

// Planes that contradict each other end the first pass that meets them, narrow or
// wide, and every later one, with the error that loading gives if it arranges.
func TestZeroCopyInvalidPlanes(t *testing.T) {
	for _, columns := range []int{1, 20} {
		for name, harm := range map[string]func(m *ternary.Matrix){
			"both signs":         func(m *ternary.Matrix) { m.BP[3*m.Stride] |= 1; m.BN[3*m.Stride] |= 1 },
			"magnitude of 0":     func(m *ternary.Matrix) { m.BP[0] &^= 2; m.BN[0] &^= 2; m.BR[0] |= 2 },
			"behind the columns": func(m *ternary.Matrix) { m.BP[m.Rows*m.Stride-m.Stride+m.Cols/8] |= 1 << (m.Cols % 8) },
			"in two places":      func(m *ternary.Matrix) { clear(m.BP); clear(m.BN); m.BR[9*m.Stride] = 1; m.BR[90*m.Stride] = 1 },
		} {
			m := ternarytest.Model(ternarytest.All()[1].Spec)
			harm(&m.Layers[1].Up)
			_, want := Backend{Kernel: "generic"}.Load(context.Background(), m, backend.Options{})
			if !errors.Is(want, ErrInvalid) {
				t.Fatalf("%s: loading gives %v", name, want)
			}
			in, seq := zeroCopy(t, m)
			for range 2 {
				run := backend.Run{Seq: seq, Tokens: make([]int32, columns), Want: []int{0}, Logits: make([]float32, m.Vocab)}
				if err := in.Forward(context.Background(), []backend.Run{run}); !errors.Is(err, ErrInvalid) || err.Error() != want.Error() || seq.Len() != 0 {
					t.Errorf("%s, %d columns: error is %v, want %v; %d tokens are in the sequence", name, columns, err, want, seq.Len())
				}
			}
		}
	}
}

// zeroCopy loads m in place, with a sequence of some tokens.
func zeroCopy(t *testing.T, m *ternary.Model) (backend.Instance, backend.Sequence) {
	in, err := inPlaceBackend.Load(context.Background(), m, backend.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	seq, err := in.NewSequence(64)
	if err != nil {
		t.Fatal(err)
	}
	return in, seq
}

// Scales are looked at when the model is loaded, as they are otherwise.
func TestZeroCopyScales(t *testing.T) {
	m := ternarytest.Model(ternarytest.All()[0].Spec)
	m.Layers[1].Down.SHi[3] = 0x1p-41
	if _, err := inPlaceBackend.Load(context.Background(), m, backend.Options{}); !errors.Is(err, backend.ErrRefused) {
		t.Errorf("error is %v", err)
	}
}

func TestZeroCopyRefused(t *testing.T) {
	m := ternarytest.Model(ternarytest.All()[0].Spec)
	for _, k := range sets() {
		if !k.present() || k.worksInPlace() {
			continue
		}
		b := Backend{Kernel: k.name, ZeroCopy: true}
		if err := b.Check(); !errors.Is(err, ErrZeroCopy) {
			t.Errorf("%s: error is %v", k.name, err)
		}
		if _, err := b.Load(context.Background(), m, backend.Options{}); !errors.Is(err, ErrZeroCopy) {
			t.Errorf("%s: error is %v", k.name, err)
		}
	}
	m.Rows = func(*ternary.Part, ternary.Tensor, int, int) error { return errors.New("read") }
	if _, err := inPlaceBackend.Load(context.Background(), m, backend.Options{}); !errors.Is(err, ErrZeroCopy) {
		t.Errorf("a model without planes: error is %v", err)
	}
}
