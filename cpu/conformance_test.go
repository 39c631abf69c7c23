package cpu

import (
	"context"
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"npack/internal/simulation"
	"npack/runtime/backend"
	"npack/runtime/backend/backendtest"
	"npack/ternary"
	"npack/ternary/ternarytest"
	"npack/testdata/story"
)

func TestConformance(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) { backendtest.Run(t, Backend{Kernel: k.name}) })
}

func TestSimulationBits(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		prompts := 24
		switch {
		case k == &generic: // a hundred times slower than the others
			prompts = 1
		case testing.Short():
			prompts = 6
		}
		simulation.Run(t, Backend{Kernel: k.name}, prompts)
	})
}

// A token costs no allocation, on any number of threads: not one in all tokens of
// a step of the cache but its first.
func TestNoAllocations(t *testing.T) {
	if err := (Backend{}).Check(); err != nil {
		t.Skip(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it allocates, too
	// On a busy machine workers would fall asleep, and the scheduler allocates for
	// what waits in a channel.
	defer func(rounds int) { spinRounds = rounds }(spinRounds)
	spinRounds = math.MaxInt
	for _, threads := range []int{1, 2, 3} {
		for _, kv := range []backend.KV{backend.KVF16, backend.KVF32, backend.KVInt8} {
			allocatesNothing(t, Backend{}, simulation.Open(t, story.Container), backend.Options{Threads: threads, KV: kv})
		}
		allocatesNothing(t, inPlaceBackend, ternarytest.Model(ternarytest.All()[2].Spec), backend.Options{Threads: threads})
	}
}

func allocatesNothing(t *testing.T, b Backend, m *ternary.Model, o backend.Options) {
	least := uint64(math.MaxUint64)
	for try := 0; try < 3 && least > 0; try++ { // of which the system may disturb some
		least = min(least, allocations(t, b, m, o))
	}
	if least != 0 {
		t.Errorf("%+v, %d threads, %s: %d allocations in %d tokens", b, o.Threads, o.KV, least, step-1)
	}
}

// allocations counts those of a new instance's tokens from the second to the
// last of a step.
func allocations(t *testing.T, b Backend, m *ternary.Model, o backend.Options) uint64 {
	in, err := b.Load(context.Background(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	seq, err := in.NewSequence(step)
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	runs := []backend.Run{{Seq: seq, Tokens: []int32{7}, Want: []int{0}, Logits: make([]float32, in.Config().Vocab)}}
	var before, after runtime.MemStats
	for i := range step {
		if i == 1 {
			runtime.ReadMemStats(&before)
		}
		if err := in.Forward(context.Background(), runs); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

// Planes that contradict each other are refused while they are arranged.
func TestInvalidPlanes(t *testing.T) {
	for name, harm := range map[string]func(m *ternary.Matrix){
		"both signs":         func(m *ternary.Matrix) { m.BP[3*m.Stride] |= 1; m.BN[3*m.Stride] |= 1 },
		"magnitude of 0":     func(m *ternary.Matrix) { m.BP[0] &^= 2; m.BN[0] &^= 2; m.BR[0] |= 2 },
		"behind the columns": func(m *ternary.Matrix) { m.BP[m.Rows*m.Stride-m.Stride+m.Cols/8] |= 1 << (m.Cols % 8) },
	} {
		m := ternarytest.Model(ternarytest.All()[1].Spec)
		harm(&m.Layers[1].Up)
		if _, err := (Backend{}).Load(context.Background(), m, backend.Options{}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "blk.1.ffn_up") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}
