// Package mlx writes and reads models as directories that mlx-lm, for Apple's
// MLX, loads by itself. FORMAT.md beside this file is the description; "§" in
// comments names a section of it.
//
// MLX multiplies with weights of a scale and a bias for each group of columns:
// evenly spaced values. The five values of a row are not, so a matrix becomes two
// of three values each, side by side (profile planes), unless its rows have one
// magnitude or two whose ratio is one of small integers (profile affine).
package mlx

import (
	"fmt"

	"npack/pack"
	"npack/ternary"
)

// Profile is a way to store matrices (§2).
type Profile string

const (
	// Affine is exact and loads with mlx-lm as it is, but only models whose rows
	// MLX's spacing can express have it.
	Affine Profile = "affine"
	// Planes is always exact. mlx-lm runs the pack's own trit_qwen3.py for it.
	Planes Profile = "planes"
	// Nearest rounds to 6 or 8 bits and loads with mlx-lm as it is.
	Nearest Profile = "nearest"
	// Dense is exact in float32, without quantisation.
	Dense Profile = "dense"
)

// Profiles lists the profiles by name.
var Profiles = []Profile{Affine, Planes, Nearest, Dense}

// PackName is the name of the file that makes a directory an MLX pack.
const PackName = "pack.json"

// packFormat and packVersion are what that file says first.
const (
	packFormat  = "trit-mlx-pack"
	packVersion = 1
)

// maxPackFile bounds pack.json and config.json, in bytes.
const maxPackFile = 64 << 20

// record is pack.json (§5).
type record struct {
	Format             string                  `json:"format"`
	Version            int                     `json:"version"`
	Profile            Profile                 `json:"profile"`
	GroupSize          int                     `json:"group_size"`
	Source             sourceRecord            `json:"source"`
	Exact              bool                    `json:"exact"`
	MaxRelWeightError  float64                 `json:"max_rel_weight_error"`
	MaxTableErrorSteps float64                 `json:"max_table_error_steps"`
	Tensors            map[string]tensorRecord `json:"tensors"`
	Files              map[string]pack.Pin     `json:"files"`
	Tool               string                  `json:"tool"`
	ToolVersion        string                  `json:"tool_version"`
}

// sourceRecord is the container that the pack was made of.
type sourceRecord struct {
	File string `json:"file"`
	pack.Pin
}

// tensorRecord is how a module's weights are stored.
type tensorRecord struct {
	Bits      int  `json:"bits"`
	GroupSize int  `json:"group_size,omitempty"` // 0 without quantisation
	Exact     bool `json:"exact"`
}

// largestGroup is the largest group of columns that divides all of cols, or 0.
func largestGroup(cols ...int) int {
	for _, g := range []int{128, 64, 32} {
		fits := true
		for _, c := range cols {
			fits = fits && c%g == 0
		}
		if fits {
			return g
		}
	}
	return 0
}

// check refuses models that mlx-lm's qwen3 cannot be.
func check(m *ternary.Model) error {
	if err := m.CheckShapes(); err != nil {
		return err
	}
	refuse := func(place, found, expected string) error {
		return &pack.Error{Kind: pack.ErrUnsupported, Place: place, Offset: -1, Found: found, Expected: expected, Hint: "such a model can be converted to GGUF or tv4z"}
	}
	if m.Arch != ternary.Qwen3 {
		return refuse("arch", "a "+m.Arch.String()+" model", "qwen3: an MLX pack has no other topology")
	}
	if err := m.Config.Validate(); err != nil {
		return refuse("", err.Error(), "")
	}
	if m.RotaryDims != m.HeadDim {
		return refuse("rotary_dims", fmt.Sprintf("%d of %d dimensions of a head are rotated", m.RotaryDims, m.HeadDim), "all, as mlx-lm does")
	}
	for t := range m.Tensors() {
		if t.Ternary != nil && t.Ternary.Bias != nil {
			return refuse(tensorPlace(t.Name), "a bias", "none: mlx-lm's qwen3 has none")
		}
		if cols := t.Shape().Cols; t.Vector == nil && cols%32 != 0 {
			return refuse(tensorPlace(t.Name), fmt.Sprintf("%d columns", cols), "a multiple of 32, MLX's smallest group")
		}
	}
	return nil
}

func tensorPlace(name string) string { return fmt.Sprintf("tensor %q", name) }
