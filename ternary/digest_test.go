package ternary_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"npack/ternary"
	"npack/ternary/ternarytest"
)

// digests are the model digests of the standard models: golden values, since
// certificates carry digests.
var digests = map[string]string{
	"qwen3-tied":            "628c3c760125d4b86a6b68c6c656f716c7144eec0021e9bf4112496b7466b73a",
	"qwen3-untied-odd":      "05be93edc38cfd27e709b5891b983019d33459724f337f9d21f00073fec36345",
	"qwen3-wide":            "e65390ad3a5062dd99dcb0ce4e20c34f958d1ba67a4ab698d2434af9e041d385",
	"qwen3-tight":           "4870d9aefaef5d0fc1a0af369fcadf6dbf2b16bc38338b73a074f665b474010d",
	"qwen2-bias-tied":       "7ea72a164fe24dee2fd992995a3e73b22e86e5bda991e22323fa98af80068715",
	"qwen2-bias-untied-odd": "bfdc0fa5ab126ab5596d8f6a7182a5f238732e02e8a4baa8377ea9d691378665",
	"bitnet-untied":         "4e6ade2e8f196d1f3baf31270d522a9e3db4ba28503ee25b126ee6ec47079f42",
	"bitnet-tied-odd":       "78bfe0250d72015579531e75172f44d5fdcbe4577eeb7eeced1ad13b36ff45fc",
}

func TestDigestGolden(t *testing.T) {
	for _, n := range ternarytest.All() {
		d, err := ternarytest.Model(n.Spec).Digests(t.Context(), ternary.WalkOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Model.String(); got != digests[n.Name] {
			t.Errorf("%q: %q,", n.Name, got)
		}
	}
}

// Strides, padding, flags' values and integrity words are not part of a digest:
// a Tight model has that of its padded twin.
func TestDigestCanonical(t *testing.T) {
	for _, n := range ternarytest.All() {
		t.Run(n.Name, func(t *testing.T) {
			a := ternarytest.Model(n.Spec)
			n.Spec.Tight = !n.Spec.Tight
			b := ternarytest.Model(n.Spec)
			for i := range b.Layers {
				for _, w := range b.Layers[i].Linears() {
					w.RSLo[0]++
					if w.BiasFlag != 0 {
						w.BiasFlag = -7
					}
				}
			}
			b.Head.WSum[0]++
			da, err := a.Digests(t.Context(), ternary.WalkOptions{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			db, err := b.Digests(t.Context(), ternary.WalkOptions{Threads: 3})
			if err != nil {
				t.Fatal(err)
			}
			if da.Model != db.Model {
				t.Errorf("the way of storing changes the digest")
			}
			i := 0
			for x := range a.Tensors() {
				if da.Tensors[i].Name != x.Name || da.Tensors[i].Digest != x.Digest() {
					t.Errorf("%s: not the digest of the tensor alone", x.Name)
				}
				i++
			}
		})
	}
}

// Every value is part of the digest.
func TestDigestChanges(t *testing.T) {
	spec := ternarytest.All()[5].Spec // biases, untied
	base, err := ternarytest.Model(spec).Digests(t.Context(), ternary.WalkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(m *ternary.Model){
		"config":  func(m *ternary.Model) { m.MaxPosition++ },
		"eps":     func(m *ternary.Model) { m.RMSEps *= 2 },
		"bp":      func(m *ternary.Model) { m.Layers[0].Down.BP[3] ^= 4 },
		"bn":      func(m *ternary.Model) { m.Layers[0].Down.BN[3] ^= 4 },
		"br":      func(m *ternary.Model) { m.Layers[0].Q.BR[0] ^= 1 },
		"s_lo":    func(m *ternary.Model) { m.Layers[0].K.SLo[1] *= -1 },
		"s_hi":    func(m *ternary.Model) { m.Layers[0].Up.SHi[74] *= 2 },
		"bias":    func(m *ternary.Model) { m.Layers[0].V.Bias[43] += 1 },
		"no bias": func(m *ternary.Model) { m.Layers[0].V.Bias, m.Layers[0].V.BiasFlag = nil, 0 },
		"norm":    func(m *ternary.Model) { m.Layers[0].FFNNorm[129] += 1 },
		"embed":   func(m *ternary.Model) { m.Embed.Row(130)[129] ^= 1 },
		"scale":   func(m *ternary.Model) { m.Head.Scale[0] += 1 },
	} {
		m := ternarytest.Model(spec)
		change(m)
		d, err := m.Digests(t.Context(), ternary.WalkOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d.Model == base.Model {
			t.Errorf("%s: the digest stays", name)
		}
		changed := 0
		for i := range d.Tensors {
			if d.Tensors[i] != base.Tensors[i] {
				changed++
			}
		}
		if want := map[bool]int{true: 0, false: 1}[name == "config" || name == "eps"]; changed != want {
			t.Errorf("%s: %d tensors' digests change, want %d", name, changed, want)
		}
	}
}

// The documented bytes, written out by hand for a 2 x 3 matrix.
func TestDigestForm(t *testing.T) {
	m := ternary.Matrix{Rows: 2, Cols: 3, ColsPad: 16, Stride: 2,
		BP: []byte{1, 0, 4, 0}, BN: []byte{2, 0, 0, 0}, BR: []byte{2, 0, 4, 0},
		SLo: []float32{1, 2}, SHi: []float32{3, 4}, RSLo: make([]int32, 2), RSHi: make([]int32, 2)}
	var b bytes.Buffer
	b.WriteString("npack tensor 1\n")
	binary.Write(&b, binary.LittleEndian, uint32(1))
	binary.Write(&b, binary.LittleEndian, []uint64{2, 3})
	b.Write([]byte{1, 4, 2, 0, 2, 4})
	binary.Write(&b, binary.LittleEndian, []float32{1, 2, 3, 4})
	binary.Write(&b, binary.LittleEndian, uint32(0))
	if got, want := (&ternary.Tensor{Ternary: &m}).Digest(), ternary.Digest(sha256.Sum256(b.Bytes())); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
