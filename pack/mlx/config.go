package mlx

import (
	"fmt"
	"strings"

	"npack/pack/hf"
)

// config returns config.json (§4).
func (p *Plan) config(side *hf.Side) ([]byte, error) {
	o, err := hf.Geometry(p.m, side)
	if err != nil {
		return nil, err
	}
	o = append(o, hf.Member{Key: "dtype", Value: "float32"})
	if p.Profile == Dense {
		return o.Encode(), nil
	}
	// Every module whose layer mlx-lm is to make a quantised one is listed: some
	// versions take the first pair for all others.
	first := 8
	if p.Profile != Planes {
		first = p.linearBits()
	}
	q := hf.Object{{Key: "group_size", Value: p.group}, {Key: "bits", Value: first}, {Key: "mode", Value: "affine"}}
	twoPlane, tables := []string{}, []string{}
	for i := range p.modules {
		k := &p.modules[i]
		switch {
		case k.bits == 0:
		case p.planes(k):
			twoPlane = append(twoPlane, k.name)
		case p.Profile == Planes && k.t.Name == "token_embd":
			tables = append(tables, k.name)
		default:
			q = append(q, hf.Member{Key: k.name, Value: hf.Object{{Key: "group_size", Value: k.group}, {Key: "bits", Value: k.bits}}})
		}
	}
	o = append(o, hf.Member{Key: "quantization", Value: q}, hf.Member{Key: "quantization_config", Value: q})
	if p.Profile == Planes {
		o = append(o, hf.Member{Key: "model_file", Value: moduleFile}, hf.Member{Key: "trit", Value: hf.Object{
			{Key: "version", Value: 1}, {Key: "group_size", Value: p.group}, {Key: "two_plane", Value: twoPlane}, {Key: "int8_embed", Value: tables}}})
	}
	return o.Encode(), nil
}

// linearBits is the width of the first matrix.
func (p *Plan) linearBits() int {
	for i := range p.modules {
		if p.modules[i].t.Ternary != nil {
			return p.modules[i].bits
		}
	}
	return 0
}

// readme returns the text that tells people how to run the pack.
func (p *Plan) readme() []byte {
	var b strings.Builder
	trust := ""
	if p.Profile == Planes {
		trust = " --trust-remote-code"
	}
	fmt.Fprintf(&b, "# MLX pack, profile %s\n\nMade by npack of %s.\n\n", p.Profile, p.o.Source)
	fmt.Fprintf(&b, "    pip install mlx-lm              # macOS\n    pip install \"mlx-lm[cpu]\"       # Linux; [cuda12] and [cuda13] exist\n"+
		"    mlx_lm.generate --model .%s --prompt \"…\" --temp 0\n    mlx_lm.server --model .%s\n\n", trust, trust)
	switch p.Profile {
	case Planes:
		b.WriteString("Weights are exact. `trit_qwen3.py` holds the two layers that mlx-lm lacks: one for rows of two magnitudes, one that\n" +
			"looks up int8 embeddings exactly. mlx-lm 0.30 and 0.31 run it without asking, 0.32 and later only with\n" +
			"`--trust-remote-code` (`trust_remote_code=True` in Python). Older versions refuse the directory. Programs that run no\n" +
			"code of a model, as LM Studio, want profile nearest.\n\n")
	case Affine:
		b.WriteString("Weights of matrices are exact.\n\n")
	case Dense:
		b.WriteString("Weights are exact, in float32.\n\n")
	case Nearest:
		fmt.Fprintf(&b, "Weights are rounded: the largest error of one is %.2g of it. Tokens may differ from the model's.\n\n", p.LinearError)
	}
	if p.TableError > 0 {
		fmt.Fprintf(&b, "MLX computes products with the int8 tables (embedding, output) with an error of at most %.2g of a row's step.\n\n", p.TableError)
	}
	b.WriteString("All scales are float32, and so is all arithmetic. Do not convert to float16: activations leave its range. On chips with\n" +
		"matrix units set `MLX_ENABLE_TF32=0` to compare tokens.\n")
	if p.Profile == Affine || p.Profile == Planes {
		b.WriteString("\n`npack from-mlx` makes the container of this directory again, byte for byte, and `nrun` runs it as it is.\n")
	}
	return []byte(b.String())
}
