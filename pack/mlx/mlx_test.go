package mlx_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"npack/internal/outfile"
	"npack/pack"
	"npack/pack/mlx"
	"npack/pack/native"
	"npack/pack/rows"
	"npack/pack/safetensors"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

func container(t testing.TB, m *ternary.Model) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := native.Write(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// write makes a pack of m and returns its directory.
func write(t testing.TB, m *ternary.Model, o mlx.Options) (string, *mlx.Plan) {
	t.Helper()
	p, err := mlx.NewPlan(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "pack")
	d, err := outfile.CreateDir(path, p.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Abort()
	r, err := p.Write(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(container(t, m))
	if r.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("sha256 %s, the container has %x", r.SHA256, sum)
	}
	return path, p
}

// open opens a pack by its only file of weights, or the first.
func open(dir string) (*mlx.File, error) {
	path := filepath.Join(dir, "model.safetensors")
	if names, err := filepath.Glob(filepath.Join(dir, "model-00001-*.safetensors")); err == nil && len(names) == 1 {
		path = names[0]
	}
	return mlx.Open(path)
}

// model makes a random model. hidden is a multiple of 32.
func model(hidden, intermediate, vocab int, tied bool) *ternary.Model {
	return ternarytest.Model(ternarytest.Spec{Seed: uint64(hidden), Config: ternary.Config{Arch: ternary.Qwen3, Layers: 2, Hidden: hidden, Heads: 2, KVHeads: 1, HeadDim: 32,
		RotaryDims: 32, Intermediate: intermediate, Vocab: vocab, MaxPosition: 64, RMSEps: 1e-6, RopeTheta: 1e6, Tied: tied}})
}

// linears calls f for every row of every matrix of m. What is in the planes may
// be changed; sums are set afterwards.
func linears(m *ternary.Model, f func(w *ternary.Matrix, r int)) {
	for i := range m.Layers {
		for _, w := range m.Layers[i].Linears() {
			for r := range w.Rows {
				f(w, r)
				lo, hi, err := w.RowSums("", 0, r)
				if err != nil {
					panic(err)
				}
				w.RSLo[r], w.RSHi[r] = int32(lo), int32(hi)
			}
		}
	}
}

func plane(p []byte, w *ternary.Matrix, r int) []byte { return p[r*w.Stride : (r+1)*w.Stride] }

// oneMagnitude makes rows use one magnitude, most the low one.
func oneMagnitude(w *ternary.Matrix, r int) {
	clear(plane(w.BR, w, r))
	switch r % 5 {
	case 1: // all high
		for i := range w.Stride {
			w.BR[r*w.Stride+i] = w.BP[r*w.Stride+i] | w.BN[r*w.Stride+i]
		}
	case 2:
		w.SHi[r] = 0
	case 3: // nothing at all
		clear(plane(w.BP, w, r))
		clear(plane(w.BN, w, r))
	}
}

// ratio makes magnitudes multiples of a number with few bits.
func ratio(a, b float32) func(w *ternary.Matrix, r int) {
	return func(w *ternary.Matrix, r int) {
		step := float32(r%100+1) / 4096
		w.SLo[r], w.SHi[r] = a*step, b*step
	}
}

// strange gives a model all that a container may have and MLX does not.
func strange(m *ternary.Model) {
	w := &m.Layers[0].Q
	w.SHi[3] = w.SLo[3]  // both planes have the same weights
	w.SHi[4] = -w.SLo[4] // or each other's negatives
	w.RSLo[0], w.RSHi[1] = 99, -99
	w = &m.Layers[1].Down
	pad := w.Stride + 3
	for _, p := range []*[]byte{&w.BP, &w.BN, &w.BR} {
		q := make([]byte, w.Rows*pad)
		for r := range w.Rows {
			copy(q[r*pad:], plane(*p, w, r))
		}
		*p = q
	}
	w.ColsPad, w.Stride = pad*8, pad
	h := &m.Head
	h.WSum[5] = 1 << 30
	pad = h.Stride + 5
	q := make([]int8, h.Rows*pad)
	for r := range h.Rows {
		copy(q[r*pad:], h.Q[r*h.Stride:(r+1)*h.Stride])
		q[(r+1)*pad-1] = int8(r)
	}
	h.ColsPad, h.Stride, h.Q = pad, pad, q
}

// Containers become packs and packs the same containers, byte for byte: odd
// shapes, all profiles that can be read, one file or several; and without the
// rows' file the same weights.
func TestRoundTrip(t *testing.T) {
	plain := func(*ternary.Model) {}
	rows1 := func(f func(*ternary.Matrix, int)) func(*ternary.Model) {
		return func(m *ternary.Model) { linears(m, f) }
	}
	tests := []struct {
		name    string
		m       *ternary.Model
		edit    func(*ternary.Model)
		o       mlx.Options
		profile mlx.Profile
		bits    int // of matrices
	}{
		{"32 columns", model(32, 32, 33, true), plain, mlx.Options{}, mlx.Planes, 2},
		{"untied", model(64, 96, 40, false), plain, mlx.Options{}, mlx.Planes, 2},
		{"160 and 32", model(160, 32, 7, true), plain, mlx.Options{}, mlx.Planes, 2},
		{"128", model(128, 256, 5, false), plain, mlx.Options{MaxShard: 20000}, mlx.Planes, 2},
		{"one token", model(96, 64, 1, true), plain, mlx.Options{}, mlx.Planes, 2},
		{"one magnitude", model(96, 64, 33, false), rows1(oneMagnitude), mlx.Options{}, mlx.Affine, 2},
		{"one magnitude in planes", model(96, 64, 33, false), rows1(oneMagnitude), mlx.Options{Profile: mlx.Planes}, mlx.Planes, 2},
		{"ratio 2", model(64, 96, 33, true), rows1(ratio(1, 2)), mlx.Options{}, mlx.Affine, 3},
		{"ratio 5:3, high below low", model(64, 96, 33, true), rows1(ratio(5, 3)), mlx.Options{MaxShard: 9000}, mlx.Affine, 4},
		{"ratio -7:9", model(64, 96, 33, true), rows1(ratio(-7, 9)), mlx.Options{}, mlx.Affine, 5},
		{"ratio 16:31", model(64, 96, 33, true), rows1(ratio(16, 31)), mlx.Options{}, mlx.Affine, 6},
		{"ratio 100:127", model(64, 96, 33, true), rows1(ratio(100, 127)), mlx.Options{}, mlx.Affine, 8},
		{"strange", model(64, 96, 33, true), strange, mlx.Options{}, mlx.Planes, 2},
		{"strange, affine", model(64, 96, 33, true), func(m *ternary.Model) { linears(m, ratio(1, 2)); strange(m) }, mlx.Options{}, mlx.Affine, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.edit(tt.m)
			dir, p := write(t, tt.m, tt.o)
			if p.Profile != tt.profile || !p.Exact || p.LinearError != 0 {
				t.Errorf("profile %s, exact %t, error %g", p.Profile, p.Exact, p.LinearError)
			}
			f, err := open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if !mlx.Is(f.Name()) {
				t.Error("not recognised")
			}
			want := container(t, tt.m)
			if got := container(t, f.Model()); !bytes.Equal(got, want) {
				t.Fatal("another container")
			}
			sum, n, ok := f.Container()
			if digest := sha256.Sum256(want); !ok || sum != hex.EncodeToString(digest[:]) || n != int64(len(want)) || f.Size() != n || f.Length() != p.Bytes {
				t.Errorf("container %s of %d bytes, %t; files of %d bytes", sum, n, ok, f.Length())
			}
			if err := f.CheckTensors(t.Context()); err != nil {
				t.Error(err)
			}
			checkBits(t, dir, tt.bits)
			checkFiles(t, dir, f)
			if err := os.Remove(filepath.Join(dir, rows.Name)); err != nil {
				t.Fatal(err)
			}
			sameValues(t, dir, tt.m)
		})
	}
}

// checkBits looks at the width that pack.json and the tensors say.
func checkBits(t *testing.T, dir string, bits int) {
	t.Helper()
	var rec struct {
		Tensors map[string]struct{ Bits int }
	}
	readJSON(t, filepath.Join(dir, mlx.PackName), &rec)
	if got := rec.Tensors["model.layers.1.mlp.gate_proj"].Bits; got != bits {
		t.Errorf("%d bits, want %d", got, bits)
	}
}

func readJSON(t testing.TB, path string, to any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkFiles checks what mlx-lm asks of a directory: no tensor that the model
// does not have, every quantised module listed, aligned data.
func checkFiles(t *testing.T, dir string, f *mlx.File) {
	t.Helper()
	var config struct {
		Quantization map[string]json.RawMessage
		Tied         bool `json:"tie_word_embeddings"`
		Trit         struct {
			TwoPlane  []string `json:"two_plane"`
			Int8Embed []string `json:"int8_embed"`
		}
	}
	readJSON(t, filepath.Join(dir, "config.json"), &config)
	s, err := safetensors.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	listed := slices.Concat(config.Trit.TwoPlane, config.Trit.Int8Embed)
	for name := range config.Quantization {
		if strings.HasPrefix(name, "model.") || name == "lm_head" {
			listed = append(listed, name)
		}
	}
	var packed []string
	for i := range s.Tensors {
		x := &s.Tensors[i]
		if module, ok := strings.CutSuffix(x.Name, ".scales"); ok {
			packed = append(packed, module)
		}
		if strings.HasPrefix(x.Name, "lm_head") && config.Tied {
			t.Errorf("%s in a tied model", x.Name)
		}
		if x.FileAt()%4 != 0 {
			t.Errorf("%s starts at byte %d", x.Name, x.FileAt())
		}
	}
	slices.Sort(listed)
	slices.Sort(packed)
	if !slices.Equal(listed, packed) {
		t.Errorf("config.json lists %q, packed are %q", listed, packed)
	}
	for _, name := range []string{"README.md", "config.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "trit_qwen3.py")); (err == nil) != (len(config.Trit.TwoPlane) > 0) {
		t.Errorf("trit_qwen3.py: %v", err)
	}
}

// sameValues compares every weight of a pack without the rows' file with m's.
func sameValues(t *testing.T, dir string, m *ternary.Model) {
	t.Helper()
	f, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, ok := f.Container(); ok {
		t.Error("the container is known without the rows' file")
	}
	if s, err := f.Model().Survey(t.Context(), ternary.WalkOptions{}); err != nil || s.SumMismatches != 0 {
		t.Fatalf("%d sums, %v", s.SumMismatches, err)
	}
	next := []ternary.Tensor{}
	for x := range f.Model().Tensors() {
		next = append(next, x)
	}
	var p, q ternary.Part
	i := 0
	for x := range m.Tensors() {
		y := next[i]
		i++
		if x.Vector != nil {
			if !slices.Equal(x.Vector, y.Vector) {
				t.Errorf("%s differs", x.Name)
			}
			continue
		}
		n, cols := x.Shape().Rows, x.Shape().Cols
		a, err := m.ReadRows(&p, x, 0, n)
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.Model().ReadRows(&q, y, 0, n)
		if err != nil {
			t.Fatal(err)
		}
		v, w := make([]float32, cols), make([]float32, cols)
		for r := range n {
			a.Values(v, r)
			b.Values(w, r)
			if !slices.Equal(v, w) {
				t.Fatalf("%s: row %d differs", x.Name, r)
			}
		}
	}
}

// What profiles nearest and dense hold, decoded as MLX does.
func TestNearestAndDense(t *testing.T) {
	m := model(64, 96, 33, true)
	worst := map[int]float64{}
	for _, o := range []mlx.Options{{Profile: mlx.Nearest}, {Profile: mlx.Nearest, Bits: 6}, {Profile: mlx.Dense}} {
		dir, p := write(t, m, o)
		if _, err := open(dir); !errors.Is(err, pack.ErrUnsupported) {
			t.Errorf("%s opens: %v", o.Profile, err)
		}
		if _, err := os.Stat(filepath.Join(dir, rows.Name)); (err == nil) != p.Exact {
			t.Errorf("%s: rows: %v", o.Profile, err)
		}
		s, err := safetensors.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		largest := 0.0
		for x := range m.Tensors() {
			if x.Ternary == nil {
				continue
			}
			_, l, _ := strings.Cut(x.Name, "blk.")
			name := "model.layers." + l[:1] + "." + map[string]string{"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
				"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}[l[2:]]
			got := dequantize(t, s, name, x.Ternary.Rows, x.Ternary.Cols)
			for r := range x.Ternary.Rows {
				for c := range x.Ternary.Cols {
					w, g := x.Ternary.Weight(r, c), got[r*x.Ternary.Cols+c]
					switch {
					case w == 0 && g != 0:
						t.Fatalf("%s: row %d, column %d is %v", name, r, c, g)
					case w != 0:
						largest = max(largest, math.Abs(float64(g)-float64(w))/math.Abs(float64(w)))
					}
				}
			}
		}
		s.Close()
		if largest > p.LinearError || o.Profile == mlx.Dense && largest != 0 || o.Profile == mlx.Nearest && largest < p.LinearError/1.01 {
			t.Errorf("%s: the largest error is %g, stated is %g", o.Profile, largest, p.LinearError)
		}
		worst[o.Bits] = p.LinearError
	}
	// The bounds of the best pair of integers (FORMAT.md §2).
	if worst[0] != 0 || worst[6] > 0.01 || worst[6] == 0 {
		t.Errorf("errors %v", worst)
	}
	if _, err := mlx.NewPlan(t.Context(), m, mlx.Options{Profile: mlx.Nearest, Bits: 4}); !errors.Is(err, pack.ErrUnsupported) {
		t.Errorf("4 bits: %v", err)
	}
}

// dequantize computes the weights of a module in float32, product rounded before
// the bias is added.
func dequantize(t *testing.T, s *safetensors.File, name string, n, cols int) []float32 {
	t.Helper()
	w := s.Tensor(name + ".weight")
	if w.DType == safetensors.F32 {
		v, err := w.Floats()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	b := make([]byte, w.Size)
	if _, err := w.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	scales, err1 := s.Tensor(name + ".scales").Floats()
	biases, err2 := s.Tensor(name + ".biases").Floats()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	bits, group := len(b)*8/(n*cols), n*cols/len(scales)
	v := make([]float32, n*cols)
	for i := range v {
		q := 0
		for k := range bits {
			at := i*bits + k
			q |= int(b[at/8]>>(at%8)&1) << k
		}
		product := scales[i/group] * float32(q)
		v[i] = product + biases[i/group]
	}
	return v
}

func TestNotWritten(t *testing.T) {
	bias := ternarytest.Model(ternarytest.All()[4].Spec)
	odd := model(64, 96, 4, true)
	odd.Layers[0].Q.BP[0], odd.Layers[0].Q.BN[0] = 1, 1
	inf := model(64, 96, 4, true)
	inf.Layers[1].Up.SHi[7] = float32(math.Inf(1))
	huge := model(64, 96, 4, true)
	huge.Head.Scale[2] = 1e37
	norm := model(64, 96, 4, true)
	norm.FinalNorm[9] = float32(math.NaN())
	biased := model(64, 96, 4, true)
	biased.Layers[1].V.Bias, biased.Layers[1].V.BiasFlag = make([]float32, 32), 1
	for name, tt := range map[string]struct {
		m    *ternary.Model
		o    mlx.Options
		text string
	}{
		"arch":      {bias, mlx.Options{}, "qwen2"},
		"columns":   {ternarytest.Model(ternarytest.All()[1].Spec), mlx.Options{}, "multiple of 32"},
		"rotary":    {ternarytest.Model(ternarytest.All()[2].Spec), mlx.Options{}, "16 of 32 dimensions"},
		"bp and bn": {odd, mlx.Options{}, "row 0, column 0"},
		"infinite":  {inf, mlx.Options{}, "row 7"},
		"huge":      {huge, mlx.Options{}, "row 2"},
		"norm":      {norm, mlx.Options{}, "value 9"},
		"bias":      {biased, mlx.Options{}, "bias"},
		"affine":    {model(64, 96, 4, true), mlx.Options{Profile: mlx.Affine}, "blk.0.attn_q"},
	} {
		_, err := mlx.NewPlan(t.Context(), tt.m, tt.o)
		if err == nil || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Broken packs are refused with the place, and nothing panics.
func TestRefused(t *testing.T) {
	m := model(64, 96, 33, false)
	planes, _ := write(t, m, mlx.Options{})
	linears(m, ratio(1, 2))
	affine, _ := write(t, m, mlx.Options{})
	edit := func(name, old, new string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			c := bytes.Replace(b, []byte(old), []byte(new), 1)
			if bytes.Equal(b, c) {
				t.Fatalf("%s has no %q", name, old)
			}
			if err := os.WriteFile(path, c, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	poke := func(tensor string, off int64, with ...byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			s, err := safetensors.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			x := s.Tensor(tensor)
			f, err := os.OpenFile(x.File(), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(with, x.FileAt()+off); err != nil {
				t.Fatal(err)
			}
		}
	}
	gone := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const down = "model.layers.1.mlp.down_proj"
	tests := []struct {
		name   string
		dir    string
		damage func(*testing.T, string)
		kind   error
		text   string
	}{
		{"no pack.json", planes, gone(mlx.PackName), pack.ErrTruncated, mlx.PackName},
		{"no config.json", planes, gone("config.json"), pack.ErrTruncated, "config.json"},
		{"pack.json cut", planes, func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, mlx.PackName), 40); err != nil {
				t.Fatal(err)
			}
		}, pack.ErrTruncated, "JSON"},
		{"version", planes, edit(mlx.PackName, `"version": 1`, `"version": 2`), pack.ErrUnsupported, "version 2"},
		{"profile", planes, edit(mlx.PackName, `"profile": "planes"`, `"profile": "plants"`), pack.ErrUnsupported, "plants"},
		{"format", planes, edit(mlx.PackName, "trit-mlx-pack", "trit-xml-pack"), pack.ErrCorrupt, "xml"},
		{"bits", planes, edit(mlx.PackName, `"bits": 2`, `"bits": 7`), pack.ErrCorrupt, "7 bits"},
		{"group", planes, edit(mlx.PackName, `"group_size": 32,
      "exact"`, `"group_size": 0,
      "exact"`), pack.ErrCorrupt, "groups of 0"},
		{"another profile's width", planes, edit(mlx.PackName, `"bits": 2`, `"bits": 3`), pack.ErrCorrupt, "3 bits"},
		{"type", planes, edit("config.json", `"qwen3"`, `"qwen9"`), pack.ErrUnsupported, "qwen9"},
		{"layers", planes, edit("config.json", `"num_hidden_layers": 2`, `"num_hidden_layers": 999`), pack.ErrCorrupt, "999 layers"},
		{"fewer layers", planes, edit("config.json", `"num_hidden_layers": 2`, `"num_hidden_layers": 1`), pack.ErrUnsupported, "layers.1"},
		{"width", planes, edit("config.json", `"hidden_size": 64`, `"hidden_size": 96`), pack.ErrCorrupt, "shape"},
		{"negative", planes, edit("config.json", `"vocab_size": 33`, `"vocab_size": -3`), pack.ErrCorrupt, "vocab is -3"},
		{"tied", planes, edit("config.json", `"tie_word_embeddings": false`, `"tie_word_embeddings": true`), pack.ErrUnsupported, "lm_head"},
		{"a name", planes, edit("model.safetensors", "model.norm.weight", "model.form.weight"), pack.ErrCorrupt, "model.norm.weight"},
		{"rows' file", planes, edit(rows.Name, "npack.container.sha256", "npack.container.sha25x"), pack.ErrCorrupt, "sha256"},
		{"rows' scale", planes, edit(rows.Name, `"blk.1.ffn_down.s_lo":`, `"blk.1.ffn_down.s_ho":`), pack.ErrCorrupt, "blk.1.ffn_down.s_lo"},
		{"code 3", planes, poke(down+".weight", 5*48+2, 0xff), pack.ErrCorrupt, "row 5, column 8"},
		{"both planes", planes, poke(down+".weight", 5*48, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa,
			0xaa, 0xaa, 0xaa, 0xaa, 0xaa), pack.ErrCorrupt, "both planes"},
		{"a group's scale", planes, poke(down+".scales", 6*24+4, 1, 2, 3, 4), pack.ErrCorrupt, "row 6, column 32"},
		{"not finite", planes, poke(down+".scales", 6*24, 0, 0, 0x80, 0x7f), pack.ErrCorrupt, "row 6"},
		{"a bias", planes, poke(down+".biases", 6*24+20, 1, 2, 3, 4), pack.ErrCorrupt, "row 6"},
		{"a table's bias", planes, poke("lm_head.biases", 8, 1, 2, 3, 4), pack.ErrCorrupt, "row 1"},
		{"a norm", planes, poke("model.norm.weight", 8, 0, 0, 0xc0, 0x7f), pack.ErrCorrupt, "value 2"},
		{"a code without a magnitude", affine, poke(down+".weight", 7*36, 0xff, 0xff, 0xff), pack.ErrCorrupt, "row 7"},
		{"a scale without its rows", affine, poke(down+".scales", 7*12, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f), pack.ErrCorrupt, "row 7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(tt.dir)); err != nil {
				t.Fatal(err)
			}
			tt.damage(t, dir)
			f, err := open(dir)
			if err == nil {
				_, err = f.Model().Survey(t.Context(), ternary.WalkOptions{})
				err = f.Place(err)
				if err == nil {
					t.Fatal("accepted")
				}
				if f.CheckTensors(t.Context()) == nil && tt.name != "rows' scale" {
					t.Error("the files are as pinned")
				}
				f.Close()
			}
			var e *pack.Error
			if !errors.As(err, &e) || !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) || e.File == "" || e.Hint == "" {
				t.Errorf("%v, want %v that mentions %q", err, tt.kind, tt.text)
			}
		})
	}
	if _, err := mlx.Open(filepath.Join(t.TempDir(), "none", "model.safetensors")); err == nil || errors.Is(err, fs.ErrNotExist) && !errors.Is(err, pack.ErrTruncated) {
		t.Errorf("no such directory: %v", err)
	}
}

// Writing stops when its context ends, and leaves nothing.
func TestInterrupted(t *testing.T) {
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	o := mlx.Options{Progress: func(done, total int64) {
		if done > total/2 {
			cancel()
		}
	}}
	p, err := mlx.NewPlan(ctx, model(64, 96, 33, true), o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := outfile.CreateDir(filepath.Join(parent, "pack"), p.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(ctx, d); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	d.Abort()
	if list, err := os.ReadDir(parent); err != nil || len(list) > 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
	if _, err := mlx.NewPlan(ctx, model(64, 96, 33, true), o); !errors.Is(err, context.Canceled) {
		t.Errorf("plan: %v", err)
	}
}

// No change of a byte panics: what opens is surveyed, or refused, and what passes
// is a container that keeps the rules. (A fuzz target would do some hundred a
// second: packs are directories. Package safetensors has one for the headers.)
func TestChangedBytes(t *testing.T) {
	changed := [4]string{mlx.PackName, "config.json", "model.safetensors", rows.Name}
	r := rand.New(rand.NewPCG(5, 6))
	m := model(32, 32, 3, true)
	for _, profile := range []mlx.Profile{mlx.Planes, mlx.Affine} {
		if profile == mlx.Affine {
			linears(m, oneMagnitude)
		}
		dir, _ := write(t, m, mlx.Options{Profile: profile})
		refused := 0
		for range 400 {
			path := filepath.Join(dir, changed[r.IntN(len(changed))])
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			bad := slices.Clone(good)
			at := r.IntN(min(len(bad), 12000)) // headers and some of the data
			if bad[at] = byte(r.Uint32()); bytes.ContainsRune([]byte("0123456789"), rune(good[at])) {
				bad[at] = byte('0' + r.IntN(10))
			}
			if err := os.WriteFile(path, bad, 0o666); err != nil {
				t.Fatal(err)
			}
			if !passes(t, dir) {
				refused++
			}
			if err := os.WriteFile(path, good, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if refused < 150 {
			t.Errorf("%s: %d of 400 refused", profile, refused)
		}
	}
}

// passes reports whether the pack in dir opens and keeps the rules.
func passes(t *testing.T, dir string) bool {
	t.Helper()
	x, err := open(dir)
	if err != nil {
		return false
	}
	defer x.Close()
	if _, err := x.Model().Survey(t.Context(), ternary.WalkOptions{}); err != nil {
		return false
	}
	y, err := native.OpenBytes("x", container(t, x.Model()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.Model().Survey(t.Context(), ternary.WalkOptions{}); err != nil {
		t.Fatalf("what was read makes a container that breaks a rule: %v", err)
	}
	return true
}
