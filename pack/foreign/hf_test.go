package foreign

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"npack/pack/hf"
	"npack/pack/native"
	"npack/pack/rows"
	"npack/pack/safetensors"
	"npack/ternary"
	"npack/ternary/ternarytest"
	"npack/testdata/story"
)

// config is a config.json for c, to be changed by tests.
func config(c *ternary.Config) map[string]any {
	m := map[string]any{
		"hidden_size": c.Hidden, "num_hidden_layers": c.Layers, "num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim,
		"intermediate_size": c.Intermediate, "vocab_size": c.Vocab, "max_position_embeddings": c.MaxPosition, "rms_norm_eps": c.RMSEps,
		"rope_theta": c.RopeTheta, "hidden_act": "silu", "model_type": c.Arch.String(), "tie_word_embeddings": c.Tied,
	}
	if c.RotaryDims != c.HeadDim {
		m["partial_rotary_factor"] = float64(c.RotaryDims) / float64(c.HeadDim)
	}
	if c.Arch == ternary.BitNet {
		m["hidden_act"] = "relu2"
		m["quantization_config"] = map[string]any{"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
	}
	return m
}

// tensor is one to be written.
type tensor struct {
	name  string
	dtype safetensors.DType
	shape []int64
	data  []byte
}

// encode returns v as values of the type, which need not hold them exactly.
func encode(d safetensors.DType, v []float32) (b []byte) {
	for _, f := range v {
		switch d {
		case safetensors.BF16:
			b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(toBF16(f))>>16))
		default:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
	}
	return b
}

// expand returns the tensors of m with a number for each weight.
func expand(m *ternary.Model, d safetensors.DType) (tensors []tensor) {
	for t := range m.Tensors() {
		var v []float32
		shape := []int64{}
		switch {
		case t.Ternary != nil:
			for r := range t.Ternary.Rows {
				for c := range t.Ternary.Cols {
					v = append(v, t.Ternary.Weight(r, c))
				}
			}
			shape = append(shape, int64(t.Ternary.Rows), int64(t.Ternary.Cols))
			if t.Ternary.Bias != nil {
				tensors = append(tensors, tensor{hf.Module(t.Name) + ".bias", d, shape[:1], encode(d, t.Ternary.Bias)})
			}
		case t.Int8 != nil:
			for r := range t.Int8.Rows {
				for _, q := range t.Int8.Row(r) {
					v = append(v, float32(q)*t.Int8.Scale[r])
				}
			}
			shape = append(shape, int64(t.Int8.Rows), int64(t.Int8.Cols))
		default:
			v, shape = t.Vector, append(shape, int64(len(t.Vector)))
		}
		tensors = append(tensors, tensor{hf.Module(t.Name) + ".weight", d, shape, encode(d, v)})
	}
	return tensors
}

// encodeFile returns the file of some tensors.
func encodeFile(t testing.TB, tensors []tensor) []byte {
	t.Helper()
	h := &safetensors.Header{Metadata: []safetensors.KV{{Key: "format", Value: "pt"}}}
	for _, x := range tensors {
		h.Tensors = append(h.Tensors, safetensors.Tensor{Name: x.name, DType: x.dtype, Shape: x.shape})
	}
	var b bytes.Buffer
	w, err := safetensors.NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tensors {
		if _, err := w.Write(x.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// repository writes a directory and returns it.
func repository(t *testing.T, config map[string]any, tensors []tensor) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "model.safetensors"), encodeFile(t, tensors))
	if config != nil {
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, configName), text)
	}
	return dir
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

// container returns the bytes of the container that m makes.
func container(t *testing.T, m *ternary.Model) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := native.Write(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// open opens a source and closes it when the test ends.
func open(t *testing.T, path string, o Options) *File {
	t.Helper()
	f, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// sameWeights compares two models weight by weight.
func sameWeights(t *testing.T, got, want *ternary.Model) {
	t.Helper()
	if err := got.Load(context.Background(), ternary.WalkOptions{}); err != nil {
		t.Fatal(err)
	}
	if got.Config != want.Config {
		t.Fatalf("config %+v, want %+v", got.Config, want.Config)
	}
	var tensors []ternary.Tensor
	for x := range want.Tensors() {
		tensors = append(tensors, x)
	}
	i := 0
	for g := range got.Tensors() {
		w := tensors[i]
		i++
		if g.Name != w.Name {
			t.Fatalf("tensor %q, want %q", g.Name, w.Name)
		}
		switch {
		case w.Ternary != nil:
			for r := range w.Ternary.Rows {
				for c := range w.Ternary.Cols {
					if a, b := g.Ternary.Weight(r, c), w.Ternary.Weight(r, c); a != b {
						t.Fatalf("%s[%d][%d] is %v, want %v", g.Name, r, c, a, b)
					}
				}
			}
			if fmt.Sprint(g.Ternary.Bias) != fmt.Sprint(w.Ternary.Bias) {
				t.Fatalf("%s: bias %v, want %v", g.Name, g.Ternary.Bias, w.Ternary.Bias)
			}
		case w.Int8 != nil:
			for r := range w.Int8.Rows {
				for c, q := range w.Int8.Row(r) {
					if a, b := float32(g.Int8.Row(r)[c])*g.Int8.Scale[r], float32(q)*w.Int8.Scale[r]; a != b {
						t.Fatalf("%s[%d][%d] is %v, want %v", g.Name, r, c, a, b)
					}
				}
			}
		default:
			if fmt.Sprint(g.Vector) != fmt.Sprint(w.Vector) {
				t.Fatalf("%s: %v, want %v", g.Name, g.Vector, w.Vector)
			}
		}
	}
}

// TestExpanded brings in every standard model from a number for each weight.
func TestExpanded(t *testing.T) {
	for _, n := range ternarytest.All() {
		t.Run(n.Name, func(t *testing.T) {
			m := ternarytest.Model(n.Spec)
			f := open(t, repository(t, config(&m.Config), expand(m, safetensors.F32)), Options{})
			got := f.Model()
			b := container(t, got)
			c, err := native.OpenBytes("container", b)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Model().Validate(); err != nil {
				t.Error(err)
			}
			sameWeights(t, got, m)
		})
	}
}

// TestStory brings the story model through a number for each weight and its rows
// back to the very container.
func TestStory(t *testing.T) {
	b := story.Container
	c, err := native.OpenBytes("story", b)
	if err != nil {
		t.Fatal(err)
	}
	m := c.Model()
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.BF16} {
		t.Run(d.String(), func(t *testing.T) {
			dir := repository(t, config(&m.Config), expand(m, d))
			var known bytes.Buffer
			sum := fmt.Sprintf("%x", sha256.Sum256(b))
			if err := rows.Write(t.Context(), &known, m, sum, int64(len(b))); err != nil {
				t.Fatal(err)
			}
			if d == safetensors.F32 { // of bf16 the linears' magnitudes are others
				write(t, filepath.Join(dir, rows.Name), known.Bytes())
			}
			f := open(t, dir, Options{})
			got := container(t, f.Model())
			if f.tables.narrow.Load() != (d == safetensors.BF16) {
				t.Errorf("notes: %q", f.Notes())
			}
			if d == safetensors.BF16 {
				return
			}
			if sha, n, ok := f.Container(); !ok || sha != sum || n != int64(len(b)) {
				t.Errorf("the rows say %q, %d", sha, n)
			}
			if !bytes.Equal(got, b) {
				t.Errorf("%d bytes differ from the container's %d", len(got), len(b))
			}
		})
	}
}
