package stock

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"npack/gguf"
	"npack/pack"
	"npack/pack/native"
	"npack/ternary"
	"npack/ternary/ternarytest"
	"npack/testdata/storydraft"
)

func draft(t testing.TB) *ternary.Model {
	t.Helper()
	f, err := native.OpenBytes("story-draft.bin", storydraft.Container)
	if err != nil {
		t.Fatal(err)
	}
	return f.Model()
}

// wide is a model whose rows are whole blocks of 256, with other scales than a
// trained one.
func wide() *ternary.Model {
	return ternarytest.Model(ternarytest.Spec{Seed: 11, Config: ternary.Config{Arch: ternary.Qwen3, Layers: 1, Hidden: 256, Heads: 8, KVHeads: 4,
		HeadDim: 32, RotaryDims: 32, Intermediate: 512, Vocab: 64, MaxPosition: 64, RMSEps: 1e-6, RopeTheta: 1e4}})
}

// Rounding to nearest here is llama.cpp's, byte for byte.
func TestNearest(t *testing.T) {
	data, err := os.ReadFile("testdata/nearest.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Rows []map[string]string }
	if err := json.Unmarshal(data, &file); err != nil || len(file.Rows) < 9 {
		t.Fatalf("%d rows: %v", len(file.Rows), err)
	}
	for i, row := range file.Rows {
		raw, _ := hex.DecodeString(row["values"])
		src := make([]float32, 256)
		if err := gguf.F32.Dequantize(src, raw); err != nil {
			t.Fatal(err)
		}
		for _, ty := range Types {
			if row[ty.Name] == "" {
				continue
			}
			got := make([]byte, len(row[ty.Name])/2)
			floats[ty.Linear](got, src)
			if hex.EncodeToString(got) != row[ty.Name] {
				t.Errorf("row %d, %s:\n%x, llama.cpp has\n%s", i, ty.Name, got, row[ty.Name])
			}
		}
	}
}

// No block has a larger squared error than by rounding to nearest, and all of
// them together have a much smaller one.
func TestBlocks(t *testing.T) {
	for name, m := range map[string]*ternary.Model{"trained": draft(t), "random": wide()} {
		for _, ty := range Types[:4] {
			ours, err := Plan(m, ty, Levels)
			if err != nil {
				t.Fatal(err)
			}
			var sum, rounded float64
			blocks := 0
			for i := range ours {
				o := &ours[i]
				if o.source.Ternary == nil {
					continue
				}
				n := *o
				n.rounding = Nearest
				a, b := encodeAll(t, m, o), encodeAll(t, m, &n)
				want := make([]float32, len(a))
				values(want, o.source)
				weights, _ := o.Type.Block()
				for at := 0; at < len(want); at += weights {
					e, f := squared(a[at:at+weights], want[at:at+weights]), squared(b[at:at+weights], want[at:at+weights])
					if e > f*(1+1e-9) {
						t.Fatalf("%s, %s, %s, block %d: error %g, by rounding to nearest %g", name, ty.Name, o.Name, at/weights, e, f)
					}
					sum += e
					rounded += f
					blocks++
				}
			}
			t.Logf("%s %s: %d blocks, root of the squared error %.3f of rounding to nearest", name, ty.Name, blocks, math.Sqrt(sum/rounded))
			if sum > 0.3*rounded {
				t.Errorf("%s, %s: squared error %g of %g", name, ty.Name, sum, rounded)
			}
		}
	}
}

func encodeAll(t *testing.T, m *ternary.Model, x *Tensor) []float32 {
	t.Helper()
	got := make([]float32, x.Rows*x.Cols)
	w := NewWeights(m, []Tensor{*x})
	if err := w.Rows(got, x.Name, 0, x.Rows); err != nil {
		t.Fatal(err)
	}
	return got
}

func squared(got, want []float32) (sum float64) {
	for i := range got {
		d := float64(got[i]) - float64(want[i])
		sum += d * d
	}
	return sum
}

// Levels against every binary16 scale: how much the few pairs that a row keeps
// miss of the best there is.
func TestLevelsAgainstAll(t *testing.T) {
	m := draft(t)
	for _, ty := range []gguf.Type{gguf.Q8_0, gguf.Q5_0, gguf.Q4_0} {
		l := newLevels(ty)
		worst := 0.0
		for r := 0; r < 24; r++ {
			w := &m.Layers[0].Q
			lo, hi := float64(w.SLo[r]), float64(w.SHi[r])
			l.values, l.counts = [4]float64{lo, -lo, hi, -hi}, [4]float64{50, 45, 15, 12}
			for i := range l.plans {
				l.plans[i] = nil
			}
			for _, count := range [][4]float64{{6, 7, 1, 2}, {1, 0, 5, 6}, {9, 9, 0, 1}, {4, 3, 0, 0}, {0, 0, 2, 0}} {
				error2 := func(d uint16) float64 {
					e, x := 0.0, l.round(float64(gguf.Float16(d)))
					for i, n := range count {
						f := float64(gguf.Float16(d))*x[i] - l.values[i]
						e += n * f * f
					}
					return e
				}
				least := math.Inf(1)
				for d := uint16(1); d <= maxHalf; d++ {
					least = min(least, error2(d), error2(d|0x8000))
				}
				d, _ := l.block(count)
				norm := count[0]*lo*lo + count[1]*lo*lo + count[2]*hi*hi + count[3]*hi*hi
				worst = max(worst, math.Sqrt(error2(d)/norm)-math.Sqrt(least/norm))
			}
		}
		t.Logf("%v: at most %.2g of the weights' size above the best", ty, worst)
		if worst > 1e-3 {
			t.Errorf("%v: %g above the best", ty, worst)
		}
	}
}

// F32 is exact, and all types keep zeros.
func TestMeasure(t *testing.T) {
	m := draft(t)
	var last int64
	for i, ty := range Types {
		list, err := Plan(m, ty, Levels)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Measure(t.Context(), m, list, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if e.Linear.Weights == 0 || e.Table.Weights == 0 || math.IsInf(e.Linear.Largest, 0) || math.IsInf(e.Table.Largest, 0) {
			t.Errorf("%s: %+v", ty.Name, e)
		}
		if exact := e.Linear.Largest == 0 && e.Table.Largest == 0; exact != (ty.Name == "f32") {
			t.Errorf("%s: %+v", ty.Name, e)
		}
		if e.Table.Largest > 1.0/1024 && ty.Name != "bf16" { // the scale's half unit
			t.Errorf("%s: embeddings %+v", ty.Name, e.Table)
		}
		size, err := Size(nil, list)
		if err != nil || size < last {
			t.Errorf("type %d, %s: %d bytes, the one before has %d: %v", i, ty.Name, size, last, err)
		}
		last = size
	}
}

// A file has the same bytes however many goroutines wrote it, and its rows are
// those that Weights gives.
func TestWrite(t *testing.T) {
	m := wide()
	for _, ty := range Types {
		list, err := Plan(m, ty, Levels)
		if err != nil {
			t.Fatal(err)
		}
		var files [2]bytes.Buffer
		for i, threads := range []int{1, 5} {
			if err := Write(t.Context(), &files[i], m, nil, list, Options{Threads: threads}); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(files[0].Bytes(), files[1].Bytes()) {
			t.Fatalf("%s: 1 and 5 threads write other bytes", ty.Name)
		}
		if n, _ := Size(nil, list); n != int64(files[0].Len()) {
			t.Errorf("%s: %d bytes, expected %d", ty.Name, files[0].Len(), n)
		}
		f, err := gguf.OpenBytes("test", files[0].Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{0, 3, 5, len(list) - 1} {
			x := f.Tensor(list[i].Name)
			got := make([]float32, x.Rows()*x.Cols())
			if err := x.Type.Dequantize(got, x.Data); err != nil {
				t.Fatal(err)
			}
			want := encodeAll(t, m, &list[i])
			for j := range want {
				if got[j] != want[j] {
					t.Fatalf("%s, %s: value %d is %v, expected %v", ty.Name, x.Name, j, got[j], want[j])
				}
			}
		}
	}
}

// Rows that are no whole blocks get a type with smaller ones.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		t    gguf.Type
		cols int
		want gguf.Type
	}{{gguf.Q6_K, 512, gguf.Q6_K}, {gguf.Q6_K, 96, gguf.Q8_0}, {gguf.Q6_K, 100, gguf.F16}, {gguf.Q4_0, 96, gguf.Q4_0}, {gguf.Q8_0, 100, gguf.F16}, {gguf.F32, 7, gguf.F32}} {
		if got := fit(c.t, c.cols); got != c.want {
			t.Errorf("%v, %d columns: %v, want %v", c.t, c.cols, got, c.want)
		}
	}
}

func TestRefuse(t *testing.T) {
	for _, c := range ternarytest.All() {
		m := ternarytest.Model(c.Spec)
		_, err := Plan(m, Types[0], Levels)
		refused := m.Arch == ternary.BitNet || m.RotaryDims != m.HeadDim || m.Arch == ternary.Qwen2 && m.QDim() != m.Hidden
		if (err != nil) != refused || err != nil && !errors.Is(err, pack.ErrUnsupported) {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	m := wide()
	m.Layers[0].O.BiasFlag, m.Layers[0].O.Bias = 1, make([]float32, 256)
	if _, err := Plan(m, Types[0], Levels); err == nil || !strings.Contains(err.Error(), "attn_output") {
		t.Errorf("a bias of attn_output: %v", err)
	}
}

// Weights that break a rule become no file.
func TestRefuseWeights(t *testing.T) {
	nan := float32(math.NaN())
	for want, change := range map[string]func(m *ternary.Model){
		`tensor "blk.0.attn_v": row 3, column 8`: func(m *ternary.Model) { w := &m.Layers[0].V; w.BP[3*w.Stride+1], w.BN[3*w.Stride+1] = 1, 1 },
		`tensor "blk.0.ffn_up": row 500`:         func(m *ternary.Model) { m.Layers[0].Up.SHi[500] = nan },
		`tensor "token_embd": row 63`:            func(m *ternary.Model) { m.Embed.Scale[63] = nan },
		`tensor "output_norm": value 9`:          func(m *ternary.Model) { m.FinalNorm[9] = nan },
	} {
		m := wide()
		change(m)
		for _, ty := range Types {
			list, err := Plan(m, ty, Levels)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Measure(t.Context(), m, list, Options{})
			for _, err := range []error{err, Write(t.Context(), io.Discard, m, nil, list, Options{})} {
				var e *ternary.Error
				if !errors.As(err, &e) || !strings.HasPrefix(e.Error(), want) {
					t.Errorf("%s: %v, want %s", ty.Name, err, want)
				}
			}
		}
	}
}

// Odd scales: no panic, no NaN, and zeros stay.
func TestOddScales(t *testing.T) {
	for _, s := range [][2]float32{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {-0.5, 0.25}, {3, 1}, {1e-30, 1e-20}, {1e-7, 3e-7}, {1e30, 2e30}, {1e-6, 1e6}} {
		m := wide()
		w := &m.Layers[0].Gate
		for r := range w.SLo {
			w.SLo[r], w.SHi[r] = s[0], s[1]
		}
		for _, ty := range Types {
			list, err := Plan(m, ty, Levels)
			if err != nil {
				t.Fatal(err)
			}
			for i := range list {
				if list[i].Name != "blk.0.ffn_gate.weight" {
					continue
				}
				got := encodeAll(t, m, &list[i])
				want := make([]float32, len(got))
				values(want, list[i].source)
				for j, g := range got {
					if g != g || want[j] == 0 && g != 0 {
						t.Fatalf("scales %v, %s: value %d is %v, of %v", s, ty.Name, j, g, want[j])
					}
				}
			}
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	m := draft(b)
	for _, ty := range Types {
		b.Run(fmt.Sprint(ty.Name), func(b *testing.B) {
			list, err := Plan(m, ty, Levels)
			if err != nil {
				b.Fatal(err)
			}
			n, _ := Size(nil, list)
			b.SetBytes(n)
			b.ReportAllocs()
			for b.Loop() {
				var w bytes.Buffer
				if err := Write(b.Context(), &w, m, nil, list, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
