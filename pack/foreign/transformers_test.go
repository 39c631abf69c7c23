package foreign

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"npack/cpu"
	"npack/internal/pylib"
	"npack/pack/hf"
	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
)

// expected is what testdata/transformers/make.py stores of the library.
type expected struct {
	MadeBy string `json:"made_by"`
	Models map[string][]struct {
		Prompt  []int32   `json:"prompt"`
		Tokens  []int32   `json:"tokens"`
		Margins []float32 `json:"margins"`
		Logits  []float32 `json:"last_logits"`
	} `json:"models"`
	Quantized map[string]struct {
		Codes     string  `json:"codes"`
		Magnitude float64 `json:"magnitude"`
	} `json:"quantized"`
}

const libraryDir = "testdata/transformers"

func readExpected(t *testing.T, dir string) *expected {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	e := new(expected)
	if err := json.Unmarshal(b, e); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestTransformers runs models that the transformers library made, in each form
// that is imported, and compares their greedy tokens with the library's own in
// float32. Its logits are float sums in another order, and where activations are
// rounded to 8 bits a last bit can become a step of 1/127: the difference must be
// far below every margin that decided a token.
func TestTransformers(t *testing.T) { compareLibrary(t, libraryDir) }

func compareLibrary(t *testing.T, dir string) {
	e := readExpected(t, dir)
	for _, name := range []string{"bitnet-packed", "bitnet-trained", "llama", "qwen2", "qwen3"} {
		runs := e.Models[name]
		if len(runs) == 0 {
			t.Fatalf("%s: nothing is stored", name)
		}
		t.Run(name, func(t *testing.T) {
			f := open(t, filepath.Join(dir, name), Options{})
			m := f.Model()
			if err := m.Load(context.Background(), ternary.WalkOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := m.Validate(); err != nil {
				t.Fatal(err)
			}
			for _, b := range []backend.Backend{reference.Backend{}, cpu.Backend{}} {
				in, err := b.Load(context.Background(), m, backend.Options{KV: backend.KVF32})
				if err != nil {
					t.Fatal(err)
				}
				for i, r := range runs {
					tokens, _, logits := pylib.Continue(t, in, r.Prompt, len(r.Tokens))
					if fmt.Sprint(tokens) != fmt.Sprint(r.Tokens) {
						t.Errorf("prompt %d: tokens %v, the library's are %v", i, tokens, r.Tokens)
						continue
					}
					smallest, worst := r.Margins[0], float32(0)
					for _, x := range r.Margins {
						smallest = min(smallest, x)
					}
					for j, x := range logits {
						worst = max(worst, float32(math.Abs(float64(x-r.Logits[j]))))
					}
					t.Logf("%T, prompt %d: %d tokens equal, smallest margin %.3g, largest difference of a logit %.3g", b, i, len(tokens), smallest, worst)
					if worst*4 > smallest {
						t.Errorf("prompt %d: a logit differs by %g, the smallest margin is %g", i, worst, smallest)
					}
				}
				in.Close()
			}
		})
	}
}

// TestTrainedWeights compares what we make of weights as trained with what the
// library makes of them: the same codes, and the same magnitude as far as its
// mean, added up in another order, allows.
func TestTrainedWeights(t *testing.T) {
	e := readExpected(t, libraryDir)
	f := open(t, filepath.Join(libraryDir, "bitnet-trained"), Options{})
	m := f.Model()
	if err := m.Load(context.Background(), ternary.WalkOptions{}); err != nil {
		t.Fatal(err)
	}
	same := 0
	for x := range m.Tensors() {
		if x.Ternary == nil {
			continue
		}
		name := hf.Module(x.Name) + ".weight"
		want, ok := e.Quantized[name]
		if !ok {
			t.Fatalf("%s: nothing is stored", name)
		}
		var codes []byte
		size := float64(x.Ternary.SLo[0])
		for r := range x.Ternary.Rows {
			for c := range x.Ternary.Cols {
				w := x.Ternary.Weight(r, c)
				switch float64(w) {
				case size:
					codes = append(codes, 1)
				case -size:
					codes = append(codes, 255)
				case 0:
					codes = append(codes, 0)
				default:
					t.Fatalf("%s[%d][%d] is %v, not ±%v", name, r, c, w, size)
				}
			}
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(codes)); got != want.Codes {
			t.Errorf("%s: other codes than the library's", name)
		}
		if size == want.Magnitude {
			same++
		}
		if math.Abs(size-want.Magnitude) > want.Magnitude*thresholdSlack {
			t.Errorf("%s: magnitude %v, the library's is %v", name, size, want.Magnitude)
		}
	}
	t.Logf("%d of %d magnitudes have the library's very bits", same, len(e.Quantized))
}

// TestTransformersAgain makes the models with the library that is here, where
// NPACK_TRANSFORMERS names a Python that has it, and compares again.
func TestTransformersAgain(t *testing.T) {
	python := os.Getenv("NPACK_TRANSFORMERS")
	if python == "" {
		t.Skip("NPACK_TRANSFORMERS does not name a Python with torch, transformers and accelerate")
	}
	dir := t.TempDir()
	c := exec.Command(python, filepath.Join(libraryDir, "make.py"), dir)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	compareLibrary(t, dir)
}
