package certificate

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"npack/pack"
)

// Part is a certificate of a shard and the file that it was read from.
type Part struct {
	File string
	*Certificate
}

// Merge makes one certificate of those of all shards of a battery. All must
// speak of the same bytes, weights, battery and arithmetic, every shard must be
// there once, and together they must have run every prompt. Errors are
// [*pack.Error] and name the file and the field.
func Merge(parts []Part) (*Certificate, error) {
	parts = slices.Clone(parts)
	for _, p := range parts {
		if p.Shard == nil {
			return nil, p.fail(pack.ErrNotEqual, "shard", "the certificate is of a whole battery", "a part, made with --shard")
		}
	}
	slices.SortStableFunc(parts, func(a, b Part) int { return cmp.Compare(a.Shard.Index, b.Shard.Index) })
	first := parts[0]
	out := *first.Certificate
	out.Shard, out.Runs, out.Prompts = nil, nil, nil
	if out.Stored != nil {
		s := *out.Stored
		s.Positions, s.Divergences = 0, 0
		out.Stored = &s
	}
	for i, p := range parts {
		if p.Shard.Count != first.Shard.Count {
			return nil, p.fail(pack.ErrNotEqual, "shard", fmt.Sprintf("shard %d of %d", p.Shard.Index, p.Shard.Count), fmt.Sprintf("one of %d, as %q", first.Shard.Count, first.File))
		}
		if err := p.same(first); err != nil {
			return nil, err
		}
		if i >= first.Shard.Count || p.Shard.Index != i {
			if i > 0 && p.Shard.Index == parts[i-1].Shard.Index {
				return nil, p.fail(pack.ErrNotEqual, "shard", fmt.Sprintf("shard %d is in %q too", p.Shard.Index, parts[i-1].File), "each shard once")
			}
			return nil, missing(i, first)
		}
		out.Runs = append(out.Runs, p.Runs...)
		out.Prompts = append(out.Prompts, p.Prompts...)
		if out.Stored != nil {
			out.Stored.Positions += p.Stored.Positions
			out.Stored.Divergences += p.Stored.Divergences
			out.Stored.MinMargin = min(out.Stored.MinMargin, p.Stored.MinMargin)
		}
		out.MadeAt = max(out.MadeAt, p.MadeAt)
	}
	if len(parts) < first.Shard.Count {
		return nil, missing(len(parts), first)
	}
	slices.SortFunc(out.Prompts, func(a, b Prompt) int { return cmp.Compare(a.Index, b.Index) })
	for i, p := range out.Prompts {
		if p.Index != i {
			return nil, &pack.Error{Kind: pack.ErrNotEqual, Place: fmt.Sprintf("prompt %d of the battery", min(i, p.Index)), Offset: -1,
				Found: "it was run by none of the shards or by two", Expected: "each prompt once", Hint: "make all parts with one --shard count"}
		}
	}
	if len(out.Prompts) != out.Battery.Prompts {
		return nil, &pack.Error{Kind: pack.ErrTruncated, Place: fmt.Sprintf("prompt %d of the battery", len(out.Prompts)), Offset: -1,
			Found: "no shard ran it", Expected: fmt.Sprintf("all %d prompts", out.Battery.Prompts)}
	}
	out.Sum()
	return &out, nil
}

func missing(index int, first Part) error {
	return &pack.Error{Kind: pack.ErrTruncated, Place: fmt.Sprintf("shard %d of %d", index, first.Shard.Count), Offset: -1,
		Found: "its certificate is not there", Expected: "one of each shard", Hint: fmt.Sprintf("run it: nrun certify --shard %d/%d", index, first.Shard.Count)}
}

// same compares what must be equal in all parts.
func (p *Part) same(q Part) error {
	for _, f := range []struct {
		place string
		a, b  any
	}{
		{"model.sha256", p.Model.SHA256, q.Model.SHA256}, {"model", p.Model, q.Model},
		{"numerics_version", p.Numerics, q.Numerics}, {"activations", p.Activations, q.Activations}, {"kv", p.KV, q.KV},
		{"battery", p.Battery, q.Battery}, {"manifest", p.Manifest, q.Manifest}, {"formats", p.Formats, q.Formats}, {"files", p.Files, q.Files},
		{"stored", p.Stored != nil, q.Stored != nil},
	} {
		if !reflect.DeepEqual(f.a, f.b) {
			return p.fail(pack.ErrNotEqual, f.place, clip(f.a), fmt.Sprintf("%s, as in %q", clip(f.b), q.File))
		}
	}
	return nil
}

// clip keeps a value that may be long in one line.
func clip(v any) string { return fmt.Sprintf("%.120s", fmt.Sprint(v)) }

func (p *Part) fail(kind error, place, found, expected string) error {
	return &pack.Error{Kind: kind, File: p.File, Place: place, Offset: -1, Found: found, Expected: expected, Hint: "were all shards made of the same directory and battery?"}
}
