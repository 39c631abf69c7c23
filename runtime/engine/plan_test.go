package engine

import (
	"encoding/json"
	"os"
	"testing"

	"npack/cpu"
	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

// planned are backends that plan in the two ways that there are.
var planned = []backend.Backend{reference.Backend{}, cpu.Backend{Kernel: "generic"}}

// TestPlanCaseA19: the cache of the published sizes, to the byte. All are whole
// steps of the cpu backend too.
func TestPlanCaseA19(t *testing.T) {
	data, err := os.ReadFile("../../testdata/cases/a19_kv_plan.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Model   string
		Layers  int
		KVHeads int `json:"kv_heads"`
		HeadDim int `json:"head_dim"`
		Ctx     int
		Dtype   string
		KVBytes int64 `json:"kv_bytes"`
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 12 {
		t.Fatalf("%d vectors", len(rows))
	}
	for _, r := range rows {
		kv, err := backend.ParseKV(r.Dtype)
		if err != nil {
			t.Fatal(err)
		}
		m := &ternary.Model{Config: ternary.Config{Layers: r.Layers, KVHeads: r.KVHeads, HeadDim: r.HeadDim}}
		for _, b := range planned {
			if p := NewPlan(b, m, backend.Options{KV: kv}, r.Ctx); p.Cache != r.KVBytes {
				t.Errorf("%s: %s, %d tokens, %s: %d bytes, want %d", b.Name(), r.Model, r.Ctx, r.Dtype, p.Cache, r.KVBytes)
			}
		}
	}
}

// TestLargestContext: what it says fits, and one token more does not.
func TestLargestContext(t *testing.T) {
	for _, n := range ternarytest.All() {
		m := ternarytest.Model(n.Spec)
		for _, kv := range []backend.KV{backend.KVF16, backend.KVF32, backend.KVInt8} {
			for _, b := range planned {
				o := backend.Options{KV: kv}
				m.MaxPosition = 1 << 20
				w := NewPlan(b, m, o, 0).Weights
				if w < 1000 {
					t.Errorf("%s: weights of %d bytes", n.Name, w)
				}
				for _, free := range []int64{0, w, w + 1<<20, w + 5<<20 + 1, w + 1<<24} {
					n := LargestContext(&m.Config, fits(b, m, o, free))
					if p := NewPlan(b, m, o, n); n > 0 && p.Total() > free {
						t.Errorf("%v: %d tokens take %d bytes, %d are free", kv, n, p.Total(), free)
					}
					if p := NewPlan(b, m, o, n+1); p.Total() <= free {
						t.Errorf("%v: %d tokens, but one more fits into %d bytes", kv, n, free)
					}
				}
				m.MaxPosition = 17
				if n := LargestContext(&m.Config, fits(b, m, o, 1<<40)); n != 17 {
					t.Errorf("%v: %d tokens, the model was made for 17", kv, n)
				}
			}
		}
	}
}

func fits(b backend.Backend, m *ternary.Model, o backend.Options, limit int64) func(int) bool {
	return func(n int) bool { return NewPlan(b, m, o, n).Total() <= limit }
}
