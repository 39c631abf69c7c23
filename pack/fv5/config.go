package fv5

import (
	"fmt"
	"strings"

	"npack/gguf"
	"npack/pack"
	"npack/ternary"
)

// Keys of the metadata (FORMAT.md §2).
const (
	keyArchitecture = "general.architecture"
	keyName         = "general.name"
	keyFileType     = "general.file_type"
	keyQuantVersion = "general.quantization_version"
	keyProvenance   = "general.quantization_provenance"

	keySHA256  = "npack.container.sha256"
	keyBytes   = "npack.container.bytes"
	keyExtra   = "npack.container.extra"
	keyTensors = "npack.tensor.sha256"

	// fileType says "mostly FV5".
	fileType = 42
	// provenance is how the value of keyProvenance begins in every FV5 file.
	provenance = "fermion-"
)

// archs are the values of general.architecture that this package knows.
var archs = []ternary.Arch{ternary.Qwen2, ternary.BitNet, ternary.Qwen3}

// number is a key that holds a dimension of the configuration.
type number struct {
	key string // below the architecture
	to  *int
}

// numbers lists the dimensions that metadata holds; vocab is the number of rows
// of the embedding.
func numbers(c *ternary.Config) []number {
	return []number{
		{"block_count", &c.Layers},
		{"context_length", &c.MaxPosition},
		{"embedding_length", &c.Hidden},
		{"feed_forward_length", &c.Intermediate},
		{"attention.head_count", &c.Heads},
		{"attention.head_count_kv", &c.KVHeads},
		{"attention.key_length", &c.HeadDim},
	}
}

// Keys that are handled one by one.
const (
	suffixValueLength = "attention.value_length"
	suffixRotary      = "rope.dimension_count" // where it is not the head's width
	suffixEps         = "attention.layer_norm_rms_epsilon"
	suffixTheta       = "rope.freq_base"
)

// metadata returns the entries that describe the model.
func metadata(c *ternary.Config) []gguf.KV {
	arch := c.Arch.String()
	kv := []gguf.KV{{Key: keyArchitecture, Value: gguf.String(arch)}}
	add := func(suffix string, v gguf.Value) { kv = append(kv, gguf.KV{Key: arch + "." + suffix, Value: v}) }
	for _, n := range numbers(c) {
		add(n.key, gguf.Uint32(uint32(*n.to)))
	}
	add(suffixValueLength, gguf.Uint32(uint32(c.HeadDim)))
	if c.RotaryDims != c.HeadDim {
		add(suffixRotary, gguf.Uint32(uint32(c.RotaryDims)))
	}
	add(suffixEps, gguf.Float32(c.RMSEps))
	add(suffixTheta, gguf.Float32(c.RopeTheta))
	return kv
}

// config reads what metadata writes.
func (f *File) config() error {
	c := &f.model.Config
	v, ok := f.g.Value(keyArchitecture)
	if !ok {
		return f.fail(pack.ErrUnsupported, "key "+quote(keyArchitecture), "the key is not there", "the name of a model family", "the file holds tensors, but not a model that this program runs")
	}
	name, _ := v.Text()
	for _, a := range archs {
		if a.String() == name {
			c.Arch = a
		}
	}
	if c.Arch == 0 {
		return f.fail(pack.ErrUnsupported, "key "+quote(keyArchitecture), "the architecture is "+v.Print(), `"qwen2", "bitnet" or "qwen3"`, "run it with llama.cpp")
	}
	for _, n := range numbers(c) {
		if err := f.number(name+"."+n.key, n.to); err != nil {
			return err
		}
	}
	var width int
	if err := f.number(name+"."+suffixValueLength, &width); err != nil {
		return err
	}
	if width != c.HeadDim {
		return f.fail(pack.ErrUnsupported, "key "+quote(name+"."+suffixValueLength), fmt.Sprintf("values of %d", width), fmt.Sprintf("the width of keys, %d", c.HeadDim), "")
	}
	c.RotaryDims = c.HeadDim
	if _, ok := f.g.Value(name + "." + suffixRotary); ok {
		if err := f.number(name+"."+suffixRotary, &c.RotaryDims); err != nil {
			return err
		}
	}
	for _, n := range []struct {
		suffix string
		to     *float32
	}{{suffixEps, &c.RMSEps}, {suffixTheta, &c.RopeTheta}} {
		v, ok := f.g.Value(name + "." + n.suffix)
		x, isFloat := v.Float()
		if !ok || !isFloat {
			return f.fail(pack.ErrCorrupt, "key "+quote(name+"."+n.suffix), "no float is there", "an f32", hintDamaged)
		}
		*n.to = float32(x)
	}
	return nil
}

// number reads an integer of the metadata.
func (f *File) number(key string, to *int) error {
	v, ok := f.g.Value(key)
	if !ok {
		return f.fail(pack.ErrCorrupt, "key "+quote(key), "the key is not there", "a u32", hintDamaged)
	}
	n, ok := v.Uint()
	if !ok || n > ternary.MaxPositions {
		return f.fail(pack.ErrCorrupt, "key "+quote(key), "the value is "+v.Print(), fmt.Sprintf("a number up to %d", ternary.MaxPositions), hintDamaged)
	}
	*to = int(n)
	return nil
}

// checkTypes refuses what cannot be an FV5 file: types that this program does not
// run, and the two types without the key that says whose they are. Package gguf
// has measured the blocks.
func (f *File) checkTypes() error {
	var first *gguf.Tensor
	for i := range f.g.Tensors {
		t := &f.g.Tensors[i]
		switch t.Type {
		case gguf.F32:
		case gguf.FV5, gguf.FV5B:
			if first == nil {
				first = t
			}
		default:
			note := ""
			if n := t.Type.Note(); n != "" {
				note = " (" + n + ")"
			}
			hint := "\"npack inspect\" lists the file; llama.cpp or the program that made it runs it"
			switch t.Type {
			case gguf.TQ1_0, gguf.TQ2_0, gguf.I2_S, gguf.Q2_0, gguf.Q2_0G128:
				hint = "\"npack import\" makes a container of it if its scales allow it; " + hint
			}
			e := f.fail(pack.ErrUnsupported, tensor(t.Name), fmt.Sprintf("type %v%s is known, but not run by this program", t.Type, note),
				"FV5 (43), FV5B (44) or F32 (0)", hint)
			e.Offset = t.FileAt
			return e
		}
	}
	if first == nil {
		return f.fail(pack.ErrUnsupported, "", "no tensor is of type FV5 or FV5B", "a two-magnitude ternary model", "\"npack inspect\" lists the file; run it with llama.cpp")
	}
	v, _ := f.g.Value(keyProvenance)
	text, _ := v.Text()
	if !strings.HasPrefix(text, provenance) {
		found := "the key is not there"
		if v.Kind == gguf.KindString && text != "" {
			found = "the value is " + v.Print()
		}
		return f.fail(pack.ErrUnsupported, "key "+quote(keyProvenance), fmt.Sprintf("%s, and tensor %q is of type %v", found, first.Name, first.Type),
			fmt.Sprintf("a value that begins with %q", provenance),
			"ids 43 and 44 have other meanings in other forks: without this key the file is not known to be FV5; run it with the program that made it")
	}
	return nil
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

func tensor(name string) string { return fmt.Sprintf("tensor %q", name) }
