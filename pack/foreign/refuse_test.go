package foreign

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"npack/pack"
	"npack/pack/hf"
	"npack/pack/native"
	"npack/pack/safetensors"
	"npack/ternary"
	"npack/ternary/ternarytest"
	"npack/testdata/cases"
)

// small is a BitNet model whose matrices have one magnitude each, that of a bf16.
func small(t testing.TB) *ternary.Model {
	t.Helper()
	m := ternarytest.Model(ternarytest.Spec{Seed: 4, Config: ternary.Config{Arch: ternary.BitNet, Layers: 1, Hidden: 20, Heads: 2, KVHeads: 2, HeadDim: 10,
		RotaryDims: 10, Intermediate: 36, Vocab: 12, MaxPosition: 64, RMSEps: 1e-5, RopeTheta: 10000, Tied: true}})
	for x := range m.Tensors() {
		if w := x.Ternary; w != nil {
			s := toBF16(w.SLo[0])
			for r := range w.Rows {
				w.SLo[r], w.SHi[r] = s, s
			}
		}
	}
	return m
}

// pack4 packs the matrices of small as the transformers library does. scale is
// what is stored for a magnitude.
func pack4(m *ternary.Model, scale func(s float32) float32) (tensors []tensor) {
	linears := map[string]*ternary.Matrix{}
	for x := range m.Tensors() {
		if x.Ternary != nil {
			linears[hf.Module(x.Name)+".weight"] = x.Ternary
		}
	}
	for _, x := range expand(m, safetensors.F32) {
		w := linears[x.name]
		if w == nil {
			tensors = append(tensors, x)
			continue
		}
		quarter := w.Rows / 4
		b := make([]byte, quarter*w.Cols)
		for r := range w.Rows {
			for c := range w.Cols {
				code := byte(1)
				if v := w.Weight(r, c); v > 0 {
					code = 2
				} else if v < 0 {
					code = 0
				}
				b[r%quarter*w.Cols+c] |= code << (r / quarter * 2)
			}
		}
		tensors = append(tensors, tensor{x.name, safetensors.U8, []int64{int64(quarter), int64(w.Cols)}, b},
			tensor{x.name + "_scale", safetensors.F32, []int64{1}, encode(safetensors.F32, []float32{scale(w.SLo[0])})})
	}
	return tensors
}

func quant(class, mode string) map[string]any {
	return map[string]any{"quant_method": "bitnet", "linear_class": class, "quantization_mode": mode}
}

// TestPacked brings in packed weights whose scale multiplies, and whose scale
// divides.
func TestPacked(t *testing.T) {
	m := small(t)
	c := config(&m.Config)
	sameWeights(t, open(t, repository(t, c, pack4(m, func(s float32) float32 { return s })), Options{}).Model(), m)

	c["quantization_config"] = quant("bitlinear", "offline")
	for x := range m.Tensors() { // the quotient, rounded once
		if w := x.Ternary; w != nil {
			s := 1 / (1 / w.SLo[0])
			for r := range w.Rows {
				w.SLo[r], w.SHi[r] = s, s
			}
		}
	}
	sameWeights(t, open(t, repository(t, c, pack4(m, func(s float32) float32 { return 1 / s })), Options{}).Model(), m)

	// Rows in pieces, as they lie in quarters.
	f := open(t, repository(t, c, pack4(m, func(s float32) float32 { return 1 / s })), Options{})
	w := &f.Model().Layers[0].Gate
	var p ternary.Part
	for r0 := range w.Rows {
		for r1 := r0 + 1; r1 <= w.Rows; r1++ {
			if err := f.Model().Rows(&p, ternary.Tensor{Name: "blk.0.ffn_gate", Ternary: w}, r0, r1); err != nil {
				t.Fatal(err)
			}
			for r := r0; r < r1; r++ {
				for c := range w.Cols {
					if p.Ternary.Weight(r-r0, c) != m.Layers[0].Gate.Weight(r, c) {
						t.Fatalf("rows %d to %d: row %d, column %d", r0, r1, r, c)
					}
				}
			}
		}
	}
}

// TestRefused has repositories that cannot become a container.
func TestRefused(t *testing.T) {
	same := func(s float32) float32 { return s }
	for name, tt := range map[string]struct {
		config  func(c map[string]any)
		tensors func(m *ternary.Model) []tensor
		kind    error
		mention []string
	}{
		"no quantization": {func(c map[string]any) { delete(c, "quantization_config") }, nil, pack.ErrUnsupported, []string{"quantization_config", "activations that are not rounded"}},
		"method":          {func(c map[string]any) { c["quantization_config"] = map[string]any{"quant_method": "gptq"} }, nil, pack.ErrUnsupported, []string{`"gptq"`}},
		"mode":            {func(c map[string]any) { c["quantization_config"] = quant("bitlinear", "online") }, nil, pack.ErrUnsupported, []string{`"bitlinear"`, `"online"`}},
		"norms": {func(c map[string]any) {
			c["quantization_config"] = map[string]any{"quant_method": "bitnet", "use_rms_norm": true}
		}, nil, pack.ErrUnsupported, []string{"use_rms_norm"}},
		"skipped": {func(c map[string]any) {
			c["quantization_config"] = map[string]any{"quant_method": "bitnet", "modules_to_not_convert": []string{"lm_head", "model.layers.0"}}
		}, nil, pack.ErrUnsupported, []string{"modules_to_not_convert"}},
		"type":       {func(c map[string]any) { c["model_type"] = "gemma" }, nil, pack.ErrUnsupported, []string{"model_type", `"gemma"`}},
		"activation": {func(c map[string]any) { c["hidden_act"] = "silu" }, nil, pack.ErrUnsupported, []string{"hidden_act", `"silu"`, `"relu2"`}},
		"angles":     {func(c map[string]any) { c["rope_scaling"] = map[string]any{"type": "linear", "factor": 2} }, nil, pack.ErrUnsupported, []string{"rope_parameters", `"linear"`}},
		"new angles": {func(c map[string]any) { c["rope_parameters"] = map[string]any{"rope_type": "llama3"} }, nil, pack.ErrUnsupported, []string{"llama3"}},
		"no theta":   {func(c map[string]any) { delete(c, "rope_theta") }, nil, pack.ErrUnsupported, []string{"rope_theta"}},
		"window":     {func(c map[string]any) { c["sliding_window"] = 10 }, nil, pack.ErrUnsupported, []string{"a window of 10"}},
		"layers":     {func(c map[string]any) { c["layer_types"] = []string{"sliding_attention"} }, nil, pack.ErrUnsupported, []string{"layer_types"}},
		"no width":   {func(c map[string]any) { delete(c, "hidden_size") }, nil, pack.ErrCorrupt, []string{"hidden_size"}},
		"heads":      {func(c map[string]any) { c["num_attention_heads"] = 0 }, nil, pack.ErrUnsupported, []string{"num_attention_heads"}},
		"too deep":   {func(c map[string]any) { c["num_hidden_layers"] = 1 << 30 }, nil, pack.ErrUnsupported, []string{"n_layers"}},
		"text":       {func(c map[string]any) { c["hidden_size"] = "20" }, nil, pack.ErrCorrupt, []string{"config.json", "hidden_size"}},
		"shape":      {func(c map[string]any) { c["intermediate_size"] = 40 }, nil, pack.ErrCorrupt, []string{"ffn_sub_norm", "shape [36]", "[40]"}},
		"missing": {nil, func(m *ternary.Model) []tensor {
			return slices.DeleteFunc(pack4(m, same), func(x tensor) bool { return x.name == "model.layers.0.mlp.up_proj.weight" })
		}, pack.ErrCorrupt, []string{"mlp.up_proj.weight", "not there"}},
		"no scale": {nil, func(m *ternary.Model) []tensor {
			return slices.DeleteFunc(pack4(m, same), func(x tensor) bool { return x.name == "model.layers.0.mlp.up_proj.weight_scale" })
		}, pack.ErrCorrupt, []string{"mlp.up_proj.weight", "no weight_scale"}},
		"bad scale": {nil, func(m *ternary.Model) []tensor { return pack4(m, func(float32) float32 { return -1 }) }, pack.ErrCorrupt, []string{"weight_scale", "-1"}},
		"extra": {nil, func(m *ternary.Model) []tensor {
			return append(pack4(m, same), tensor{"model.layers.0.mlp.router.weight", safetensors.F32, []int64{1}, make([]byte, 4)})
		}, pack.ErrUnsupported, []string{"mlp.router.weight", "no such part"}},
		"integers": {nil, func(m *ternary.Model) []tensor {
			t := pack4(m, same)
			for i := range t {
				if t[i].name == "model.layers.0.mlp.up_proj.weight" {
					t[i] = tensor{t[i].name, safetensors.I8, []int64{36, 20}, make([]byte, 36*20)}
				}
			}
			return t
		}, pack.ErrUnsupported, []string{"mlp.up_proj.weight", "type I8"}},
		"infinite norm": {nil, func(m *ternary.Model) []tensor {
			t := pack4(m, same)
			for i := range t {
				if t[i].name == "model.norm.weight" {
					binary.LittleEndian.PutUint32(t[i].data[8:], infinity)
				}
			}
			return t
		}, pack.ErrCorrupt, []string{"model.norm.weight", "value 2 is +Inf"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := small(t)
			c := config(&m.Config)
			if tt.config != nil {
				tt.config(c)
			}
			tensors := pack4(m, same)
			if tt.tensors != nil {
				tensors = tt.tensors(m)
			}
			f, err := Open(repository(t, c, tensors), Options{})
			if err == nil {
				f.Close()
				t.Fatal("it was opened")
			}
			refused(t, err, tt.kind, tt.mention)
		})
	}
}

func refused(t *testing.T, err, kind error, mention []string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%v is no %v", err, kind)
	}
	for _, s := range mention {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

// TestRefusedRows has weights that do not fit, which is found when rows are read.
func TestRefusedRows(t *testing.T) {
	same := func(s float32) float32 { return s }
	plain := func(m *ternary.Model) []tensor { return expand(m, safetensors.F32) }
	for name, tt := range map[string]struct {
		tensors func(m *ternary.Model) []tensor
		of      string // the tensor to change
		change  func(b []byte)
		kind    error
		mention []string
	}{
		"code 3": {func(m *ternary.Model) []tensor { return pack4(m, same) }, "mlp.down_proj.weight", func(b []byte) { b[3*36+7] |= 3 << 4 }, pack.ErrCorrupt,
			[]string{"mlp.down_proj.weight", "row 13: byte ", "column 7: the code 3"}},
		"three magnitudes": {plain, "self_attn.k_proj.weight", func(b []byte) {
			for i, v := range []float32{1, 2, 3} {
				binary.LittleEndian.PutUint32(b[4*(5*20+i):], 0x3f800000+uint32(v))
			}
		}, pack.ErrUnsupported, []string{"self_attn.k_proj.weight", "row 5", "4 different magnitudes in 20 values of type F32", "at most 2 in a row"}},
		"infinite": {plain, "self_attn.k_proj.weight", func(b []byte) { binary.LittleEndian.PutUint32(b[4*20:], infinity|signBit) }, pack.ErrCorrupt,
			[]string{"self_attn.k_proj.weight", "row 1", "not finite"}},
		"embedding": {plain, "embed_tokens.weight", func(b []byte) { binary.LittleEndian.PutUint32(b[4*(7*20+3):], 0x3dcccccd) }, pack.ErrUnsupported,
			[]string{"embed_tokens.weight", "row 7", "different magnitudes, not multiples -128 to 127 of one scale"}},
		"no number": {plain, "embed_tokens.weight", func(b []byte) { binary.LittleEndian.PutUint32(b, infinity+1) }, pack.ErrCorrupt, []string{"embed_tokens.weight", "row 0", "not finite"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := small(t)
			tensors := tt.tensors(m)
			for i := range tensors {
				if strings.HasSuffix(tensors[i].name, tt.of) {
					tt.change(tensors[i].data)
				}
			}
			f := open(t, repository(t, config(&m.Config), tensors), Options{})
			refused(t, native.Write(new(bytes.Buffer), f.Model()), tt.kind, tt.mention)
		})
	}
}

// TestRoundTables rounds an embedding if that is allowed, and says how far.
func TestRoundTables(t *testing.T) {
	m := small(t)
	tensors := expand(m, safetensors.F32)
	binary.LittleEndian.PutUint32(tensors[len(tensors)-1].data, 0x3dcccccd) // the tied table
	f := open(t, repository(t, config(&m.Config), tensors), Options{RoundTables: true})
	container(t, f.Model())
	if notes := f.Notes(); !f.Rounded() || len(notes) != 1 || !strings.Contains(notes[0], "1 rows of embeddings are rounded to int8") {
		t.Errorf("notes: %q", notes)
	}
	if e := f.tables.largest; !(e > 0 && e <= 0.5/127) {
		t.Errorf("the largest error is %v of the row's largest value", e)
	}
}

// TestTied has a repository with an output embedding that its configuration
// replaces.
func TestTied(t *testing.T) {
	m := small(t)
	tensors := append(expand(m, safetensors.F32), tensor{"lm_head.weight", safetensors.F32, []int64{1}, make([]byte, 4)},
		tensor{"model.layers.0.self_attn.rotary_emb.inv_freq", safetensors.F32, []int64{1}, make([]byte, 4)})
	f := open(t, repository(t, config(&m.Config), tensors), Options{})
	sameWeights(t, f.Model(), m)
	var names []string
	for _, d := range f.Dropped() {
		names = append(names, d.Name)
	}
	if want := []string{"lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"}; !slices.Equal(names, want) {
		t.Errorf("dropped %q", names)
	}
}

// TestCases opens the cases that are safetensors, alone as they are.
func TestCases(t *testing.T) {
	seen := 0
	for _, c := range cases.All() {
		if filepath.Ext(c.File) != ".safetensors" {
			continue
		}
		seen++
		t.Run(c.File, func(t *testing.T) {
			b, err := cases.Files.ReadFile(c.File)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), c.File)
			write(t, path, b)
			f, err := Open(path, Options{})
			if err == nil {
				f.Close()
				t.Fatal("it was opened")
			}
			e := new(pack.Error)
			if !errors.As(err, &e) || e.Hint == "" {
				t.Errorf("no hint: %v", err)
			}
			for _, s := range c.MustMention {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
	if seen != 5 {
		t.Errorf("%d cases", seen)
	}
}

// TestPackedCase decodes the packed case with a configuration beside it: its
// matrix is what the case says, whichever way the scale goes.
func TestPackedCase(t *testing.T) {
	i := slices.IndexFunc(cases.All(), func(c cases.Case) bool { return c.File == "a23_packed_u8.safetensors" })
	var want struct {
		Ternary [][]int `json:"ternary"`
	}
	if err := json.Unmarshal(cases.All()[i].Expect, &want); err != nil {
		t.Fatal(err)
	}
	b, err := cases.Files.ReadFile("a23_packed_u8.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	st, err := safetensors.New("x", bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	for form, size := range map[bitnetForm]float32{multiplied: 1.5, divided: 1 / float32(1.5)} {
		lib := &hfFiles{f: st, form: form, used: map[string]bool{}}
		x, err := lib.linear("blk.0.ffn_down", ternary.Shape{Rows: 8, Cols: 8})
		if err != nil {
			t.Fatal(err)
		}
		var p ternary.Part
		p.Size(ternary.Tensor{Ternary: &ternary.Matrix{Rows: 8, Cols: 8, ColsPad: 512, Stride: 64}}, 8)
		if err := x.matrix(&p.Ternary, 0, known{}); err != nil {
			t.Fatal(err)
		}
		for r, row := range want.Ternary {
			for c, v := range row {
				if got := p.Ternary.Weight(r, c); got != float32(v)*size {
					t.Errorf("[%d][%d] is %v, want %d times %v", r, c, got, v, size)
				}
			}
		}
	}
}

// TestTableScales finds the scale of rows that were made with one, and of those
// that are rounded products.
func TestTableScales(t *testing.T) {
	for _, s := range []float32{1, 0x1p-10, 0.0123, 3.4e-5, 17.25} {
		for _, top := range []int{1, 2, 64, 100, 127, -128} {
			var q []int8
			for i := range 300 {
				q = append(q, int8(i*top/299-i%2))
			}
			q[7] = int8(top)
			for _, r := range []rounding{{}, roundBF16, roundF16} {
				if r.to != nil && (s < 1e-4 && r.bits == 11) {
					continue // subnormal numbers of f16
				}
				v := make([]float32, len(q))
				for i := range v {
					v[i] = float32(q[i]) * s
					if r.to != nil {
						v[i] = r.to(v[i])
					}
				}
				got := make([]int8, len(q))
				scale, narrow, err := putTable(got, v, 0, r)
				if err != nil {
					t.Errorf("scale %v, largest %d, %d bits: %v", s, top, r.bits, err.found)
					continue
				}
				for i := range v {
					p := float32(got[i]) * scale
					if narrow {
						p = r.to(p)
					}
					if p != v[i] {
						t.Fatalf("scale %v, largest %d, %d bits: value %d is %v, want %v", s, top, r.bits, i, p, v[i])
					}
				}
			}
		}
	}
	if s, _, err := putTable(make([]int8, 3), make([]float32, 3), 0.5, rounding{}); s != 0.5 || err != nil {
		t.Errorf("a row of zeros: %v, %v", s, err)
	}
}

// FuzzRepository opens what a fuzzer makes of a configuration and a file, and
// reads all of it.
func FuzzRepository(f *testing.F) {
	m := small(f)
	same := func(s float32) float32 { return s }
	c := config(&m.Config)
	for _, tt := range []struct {
		quant   map[string]any
		tensors []tensor
	}{
		{quant("autobitlinear", "offline"), pack4(m, same)}, {quant("bitlinear", "offline"), pack4(m, same)},
		{quant("autobitlinear", "online"), expand(m, safetensors.BF16)}, {quant("autobitlinear", "offline"), expand(m, safetensors.F32)},
	} {
		c["quantization_config"] = tt.quant
		text, err := json.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, encodeFile(f, tt.tensors))
	}
	f.Fuzz(func(t *testing.T, config, file []byte) {
		st, err := safetensors.New("x.safetensors", bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		x := &File{name: "x.safetensors"}
		if err := x.readHF(st, configName, config); err != nil {
			return
		}
		readAll(t, x.Model())
	})
}
