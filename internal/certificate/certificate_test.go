package certificate

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/pack"
)

// digest is any sha256.
func digest(c string) string { return strings.Repeat(c, 64) }

// part is the certificate of one of two shards of a battery of five prompts.
func part(index int) *Certificate {
	c := &Certificate{Format: Format, Version: Version, MadeAt: "2026-11-30T00:00:00Z", Numerics: 1, Activations: "exact", KV: "f16",
		Model:    Model{SHA256: digest("a"), Arch: "qwen3", Tensors: []Tensor{{"blk.0.attn_q", digest("b")}}},
		Formats:  []FormatDigest{{Format: "native", File: "m.bin", Pin: pack.Pin{Bytes: 3, SHA256: digest("c")}}},
		Manifest: pack.Pin{Bytes: 9, SHA256: digest("d")}, Files: map[string]pack.Pin{"m.bin": {Bytes: 3, SHA256: digest("c")}},
		Battery: Battery{Name: "b", SHA256: digest("e"), Prompts: 5, Steps: 4}, Shard: &Shard{Index: index, Count: 2},
		Runs:   []Run{{Shard: index, File: "m.bin", Backend: "cpu"}, {Shard: index, File: "m.bin", Backend: "reference", Positions: 12}},
		Stored: &Stored{File: "trajectories.json", Positions: 10, MinMargin: 0.5 - float64(index)/10}}
	for i := index; i < 5; i += 2 {
		c.Prompts = append(c.Prompts, Prompt{Index: i, Class: []string{"code", "chat"}[i%2], Steps: 4, MinMargin: 0.5 + float64(i)/4, SHA256: digest("f")})
	}
	c.Sum()
	return c
}

func TestMerge(t *testing.T) {
	m, err := Merge([]Part{{"1", part(1)}, {"0", part(0)}})
	if err != nil {
		t.Fatal(err)
	}
	if m.Shard != nil || len(m.Prompts) != 5 || len(m.Runs) != 4 || m.Positions != 44 || m.Stored.Positions != 20 || *m.MinMargin != 0.4 {
		t.Errorf("%+v", m)
	}
	want := []Class{{"code", 3, 12, 0.5}, {"chat", 2, 8, 0.75}}
	if d := cmp.Diff(want, m.Classes); d != "" {
		t.Error(d)
	}
	// It is a certificate like any other.
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse("x", data)
	if d := cmp.Diff(m, back); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, c := range []struct {
		name   string
		change func(c *Certificate)
		kind   error
		want   string
	}{
		{"weights", func(c *Certificate) { c.Model.SHA256 = digest("0") }, pack.ErrNotEqual, `"1": model.sha256: 000`},
		{"a tensor", func(c *Certificate) { c.Model.Tensors[0].SHA256 = digest("0") }, pack.ErrNotEqual, `"1": model: `},
		{"numerics", func(c *Certificate) { c.Numerics = 2 }, pack.ErrNotEqual, `numerics_version: 2, expected 1, as in "0"`},
		{"cache", func(c *Certificate) { c.KV = "f32" }, pack.ErrNotEqual, "kv: f32, expected f16"},
		{"battery", func(c *Certificate) { c.Battery.Steps = 5 }, pack.ErrNotEqual, "battery: "},
		{"manifest", func(c *Certificate) { c.Manifest.Bytes = 5 }, pack.ErrNotEqual, "manifest: "},
		{"formats", func(c *Certificate) { c.Formats = nil }, pack.ErrNotEqual, "formats: "},
		{"stored", func(c *Certificate) { c.Stored = nil }, pack.ErrNotEqual, "stored: "},
		{"count", func(c *Certificate) { c.Shard.Count = 3 }, pack.ErrNotEqual, "shard: shard 1 of 3, expected one of 2"},
		{"prompt twice", func(c *Certificate) { c.Prompts[0].Index = 0 }, pack.ErrNotEqual, "prompt 0 of the battery"},
		{"prompt missing", func(c *Certificate) { c.Prompts = c.Prompts[:1] }, pack.ErrNotEqual, "prompt 3 of the battery"},
	} {
		other := part(1)
		c.change(other)
		if _, err := Merge([]Part{{"0", part(0)}, {"1", other}}); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := Merge([]Part{{"1", part(1)}, {"1", part(1)}, {"0", part(0)}}); !errors.Is(err, pack.ErrNotEqual) {
		t.Error(err)
	}
	if _, err := Merge([]Part{{"1", part(1)}}); !errors.Is(err, pack.ErrTruncated) || !strings.Contains(err.Error(), "shard 0 of 2: its certificate is not there") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	data, err := part(0).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"format":"npack-certificate","version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("x", data)
		if err != nil {
			return
		}
		for _, file := range c.Formats {
			if !pack.LocalName(file.File) {
				t.Errorf("took the name %q", file.File)
			}
		}
		if m, err := Merge([]Part{{"x", c}, {"0", part(0)}}); err == nil && len(m.Prompts) != m.Battery.Prompts {
			t.Errorf("%d of %d prompts", len(m.Prompts), m.Battery.Prompts)
		}
	})
}
