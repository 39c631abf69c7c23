//go:build bochs

package cpu

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/klauspost/cpuid/v2"

	"npack/internal/simulation"
	"npack/runtime/backend"
	"npack/testdata/story"
)

// emulated is the set $BOCHS_SET, whose kernels run under _bochs/emulate.py where the
// processor lacks their instructions.
var emulated = os.Getenv("BOCHS_SET")

func init() {
	avx512 := []cpuid.FeatureID{cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.AVX512VNNI, cpuid.GFNI}
	cpuid.CPU.Enable(map[string][]cpuid.FeatureID{
		"avx512vnni": avx512,
		"avxvnni":    {cpuid.AVXVNNI},
		"amx":        slices.Concat(avx512, []cpuid.FeatureID{cpuid.AMXTILE, cpuid.AMXINT8}),
	}[emulated]...)
	if emulated == "amx" && !tilesPermitted() {
		tilesPermitted = func() bool { return true }
	}
}

// TestModel is what an emulator has time for of a whole model: a prompt, a token and
// two tokens, with the logits that AVX2 gives.
func TestModel(t *testing.T) {
	for _, a := range []backend.Activations{1, 2, 3} {
		want := storyLogits(t, Backend{Kernel: "avx2"}, a)
		for _, b := range []Backend{{Kernel: emulated}, {Kernel: emulated, ZeroCopy: true}} {
			if b.ZeroCopy && (a != backend.Exact || emulated == "avxvnni") { // for which there is no time, or no kernel
				continue
			}
			for i, got := range storyLogits(t, b, a) {
				if !slices.Equal(got, want[i]) {
					t.Errorf("%+v, %v activations, step %d: the logits differ", b, a, i)
				}
			}
		}
	}
}

// storyLogits returns the last logits of each step.
func storyLogits(t *testing.T, b Backend, a backend.Activations) (logits [][]float32) {
	in, err := b.Load(context.Background(), simulation.Open(t, story.Container), backend.Options{Threads: 1, Activations: a})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	seq, err := in.NewSequence(step)
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	for _, tokens := range [][]int32{{7, 19, 300, 4, 55, 90, 1, 2, 3}, {12}, {5, 6}} {
		runs := []backend.Run{{Seq: seq, Tokens: tokens, Want: []int{len(tokens) - 1}, Logits: make([]float32, in.Config().Vocab)}}
		if err := in.Forward(context.Background(), runs); err != nil {
			t.Fatal(err)
		}
		logits = append(logits, runs[0].Logits)
	}
	return logits
}
