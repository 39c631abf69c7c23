package ternary_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/ternary"
	"npack/ternary/ternarytest"
)

// outside returns a copy of m that is not in memory, and counts its reads.
func outside(m *ternary.Model, fail func(name string) error) *ternary.Model {
	whole := *m
	x := *m
	x.Layers = append([]ternary.Layer(nil), m.Layers...)
	source := map[string]ternary.Tensor{}
	for t := range whole.Tensors() {
		source[t.Name] = t
	}
	head, embed := m.Head, ternary.Int8Matrix{}
	x.Head = ternary.Int8Matrix{Rows: head.Rows, Cols: head.Cols, ColsPad: head.ColsPad, Stride: head.Stride}
	if m.Embed != nil {
		embed = *m.Embed
		x.Embed = &ternary.Int8Matrix{Rows: embed.Rows, Cols: embed.Cols, ColsPad: embed.ColsPad, Stride: embed.Stride}
	}
	for i := range x.Layers {
		for _, w := range x.Layers[i].Linears() {
			w.BP, w.BN, w.BR, w.SLo, w.SHi, w.RSLo, w.RSHi = nil, nil, nil, nil, nil, nil, nil
		}
	}
	x.Rows = func(p *ternary.Part, t ternary.Tensor, r0, r1 int) error {
		if err := fail(t.Name); err != nil {
			return err
		}
		p.Size(t, r1-r0)
		var view ternary.Part
		s, err := whole.ReadRows(&view, source[t.Name], r0, r1)
		if err != nil {
			return err
		}
		if w := s.Ternary; w != nil {
			q := &p.Ternary
			copy(q.BP, w.BP)
			copy(q.BN, w.BN)
			copy(q.BR, w.BR)
			copy(q.SLo, w.SLo)
			copy(q.SHi, w.SHi)
			copy(q.RSLo, w.RSLo)
			copy(q.RSHi, w.RSHi)
			q.Bias = w.Bias
			return nil
		}
		copy(p.Int8.Q, s.Int8.Q)
		copy(p.Int8.Scale, s.Int8.Scale)
		copy(p.Int8.WSum, s.Int8.WSum)
		return nil
	}
	return &x
}

// A model outside memory has the same survey and digests, and loads as the same.
func TestRows(t *testing.T) {
	ctx := context.Background()
	for _, s := range ternarytest.All() {
		t.Run(s.Name, func(t *testing.T) {
			m := ternarytest.Model(s.Spec)
			x := outside(m, func(string) error { return nil })
			if err := x.CheckShapes(); err != nil {
				t.Fatal(err)
			}
			for _, o := range []ternary.WalkOptions{{Threads: 1}, {Threads: 3}} {
				a, err := m.Survey(ctx, o)
				b, errB := x.Survey(ctx, o)
				if err != nil || errB != nil || !cmp.Equal(a, b) {
					t.Errorf("survey: %v, %v\n%s", err, errB, cmp.Diff(a, b))
				}
				c, err := m.Digests(ctx, o)
				d, errB := x.Digests(ctx, o)
				if err != nil || errB != nil || !cmp.Equal(c, d) {
					t.Errorf("digests: %v, %v", err, errB)
				}
			}
			if err := x.Load(ctx, ternary.WalkOptions{}); err != nil || x.Rows != nil {
				t.Fatal(err)
			}
			if err := x.CheckShapes(); err != nil {
				t.Error(err)
			}
			a, err := m.Survey(ctx, ternary.WalkOptions{})
			b, errB := x.Survey(ctx, ternary.WalkOptions{})
			c, errC := m.Digests(ctx, ternary.WalkOptions{})
			d, errD := x.Digests(ctx, ternary.WalkOptions{})
			if e := errors.Join(err, errB, errC, errD); e != nil || !cmp.Equal(a, b) || !cmp.Equal(c, d) {
				t.Errorf("loaded: %v, another survey or other digests", e)
			}
			if err := x.Load(ctx, ternary.WalkOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// What reading finds wrong ends every walk, and a model stays as it was.
func TestRowsFail(t *testing.T) {
	ctx := context.Background()
	bad := errors.New("bad")
	for _, at := range []string{"blk.0.ffn_up", "token_embd"} {
		x := outside(ternarytest.Model(ternarytest.All()[0].Spec), func(name string) error {
			if name == at {
				return bad
			}
			return nil
		})
		if _, err := x.Survey(ctx, ternary.WalkOptions{}); !errors.Is(err, bad) {
			t.Errorf("survey: %v", err)
		}
		if _, err := x.Digests(ctx, ternary.WalkOptions{}); !errors.Is(err, bad) {
			t.Errorf("digests: %v", err)
		}
		if err := x.Load(ctx, ternary.WalkOptions{}); !errors.Is(err, bad) || x.Rows == nil || x.Layers[0].Q.BP != nil {
			t.Errorf("load: %v", err)
		}
	}
}
