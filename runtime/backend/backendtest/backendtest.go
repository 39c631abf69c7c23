// Package backendtest is the conformance suite of backends: every logit that a
// backend gives must equal the reference's, bit for bit, however the tokens
// came to it.
package backendtest

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

// length of the test texts, in tokens: two whole attention chunks and a bit,
// so that every position around a chunk's edge is some text's last.
const length = 131

// Case is one way to run one of the seeded models.
type Case struct {
	Name string
	Spec ternarytest.Spec
	backend.Options
}

// Cases returns all models with all activation widths (f16 cache) and all KV
// types (exact activations); in short mode, one model of each topology with
// exact activations.
func Cases(short bool) []Case {
	var cases []Case
	seen := map[ternary.Arch]bool{}
	for _, n := range ternarytest.All() {
		if short && seen[n.Spec.Arch] {
			continue
		}
		seen[n.Spec.Arch] = true
		for _, a := range []backend.Activations{backend.Exact, backend.Int16, backend.Int8} {
			for _, kv := range []backend.KV{backend.KVF16, backend.KVF32, backend.KVInt8} {
				if a != backend.Exact && (short || kv != backend.KVF16) {
					continue
				}
				name := fmt.Sprintf("%s/%s/%s", n.Name, a, kv)
				cases = append(cases, Case{name, n.Spec, backend.Options{Activations: a, KV: kv}})
			}
		}
	}
	return cases
}

//go:embed golden.json
var goldenJSON []byte

// Golden returns the checksum of the reference's logits for each case, as
// stored: the same on every platform.
func Golden() (golden map[string]string, err error) {
	err = json.Unmarshal(goldenJSON, &golden)
	return golden, err
}

// Text returns a random text of the model's tokens; texts of different seeds
// differ from the first token on.
func Text(c *ternary.Config, seed int) []int32 {
	ids, state := make([]int32, length), uint32(seed)*2654435761+1
	for i := range ids {
		state = state*1664525 + 1013904223
		ids[i] = int32(uint64(state) * uint64(c.Vocab) >> 32)
	}
	ids[0] = int32(seed % c.Vocab)
	return ids
}

// Checksum is the sha256 of the logits as little-endian float32.
func Checksum(logits []float32) string {
	b := make([]byte, 0, 4*len(logits))
	for _, v := range logits {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Reference returns the reference's logits [len(ids), Vocab] for a text, one
// token at a time on one thread.
func Reference(t testing.TB, m *ternary.Model, o backend.Options, ids []int32) []float32 {
	t.Helper()
	o.Threads = 1
	in := load(t, reference.Backend{}, m, o)
	return feed(t, in, newSequence(t, in, len(ids)), ids, 1)
}

// known holds the reference's logits of [Run], which several sets of kernels of
// one backend are held to, by case and text.
var known sync.Map

// remembered is Reference for text number i of a case.
func remembered(t testing.TB, c *Case, m *ternary.Model, i int, ids []int32) []float32 {
	t.Helper()
	key := fmt.Sprint(c.Name, i)
	if l, ok := known.Load(key); ok {
		return l.([]float32)
	}
	l := Reference(t, m, c.Options, ids)
	known.Store(key, l)
	return l
}

// Run proves that b conforms.
func Run(t *testing.T, b backend.Backend) {
	for _, c := range Cases(testing.Short()) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			m := ternarytest.Model(c.Spec)
			texts := [][]int32{Text(&m.Config, 1), Text(&m.Config, 2), Text(&m.Config, 3)}
			want := make([][]float32, len(texts))
			for i, ids := range texts {
				want[i] = remembered(t, &c, m, i, ids)
			}
			in := load(t, b, m, c.Options)
			// All of the splits for the default way to run; the others differ
			// in arithmetic that the split does not touch.
			pieces := []int{7, length}
			if c.Activations == backend.Exact && c.KV == backend.KVF16 {
				pieces = []int{1, 7, 63, 64, 65, 128, length}
			}
			for _, n := range pieces {
				got := feed(t, in, newSequence(t, in, length), texts[0], n)
				equal(t, fmt.Sprintf("prefill in pieces of %d", n), got, want[0])
			}
			neighbours(t, in, texts, want)
			rollback(t, in, texts, want)
			if r, ok := in.(backend.Ranker); ok {
				ranks(t, r, texts, want)
			}
		})
	}
	t.Run("threads", func(t *testing.T) { threads(t, b) })
	t.Run("fork", func(t *testing.T) { fork(t, b) })
	t.Run("errors", func(t *testing.T) { failures(t, b) })
	t.Run("overflow", func(t *testing.T) { overflows(t, b) })
	t.Run("refused", func(t *testing.T) { refusals(t, b) })
}

// feed appends ids to seq in pieces of n and returns all their logits.
func feed(t testing.TB, in backend.Instance, seq backend.Sequence, ids []int32, n int) []float32 {
	t.Helper()
	vocab := in.Config().Vocab
	out := make([]float32, len(ids)*vocab)
	for i := 0; i < len(ids); i += n {
		r := whole(seq, ids[i:min(i+n, len(ids))], vocab)
		if err := in.Forward(context.Background(), []backend.Run{r}); err != nil {
			t.Fatal(err)
		}
		copy(out[i*vocab:], r.Logits)
	}
	return out
}

// whole is a run of ids that wants all logits. They are filled with a canary:
// a logit that is not written shows.
func whole(seq backend.Sequence, ids []int32, vocab int) backend.Run {
	r := backend.Run{Seq: seq, Tokens: ids, Logits: make([]float32, len(ids)*vocab)}
	for i := range ids {
		r.Want = append(r.Want, i)
	}
	for i := range r.Logits {
		r.Logits[i] = 1e30
	}
	return r
}

// neighbours runs three texts of different lengths side by side, in batches
// where each stands at another place.
func neighbours(t *testing.T, in backend.Instance, texts [][]int32, want [][]float32) {
	vocab := in.Config().Vocab
	seqs := make([]backend.Sequence, len(texts))
	for i := range seqs {
		seqs[i] = newSequence(t, in, length)
	}
	at := make([]int, len(texts))
	for step := 0; step < 6; step++ {
		var runs []backend.Run
		for i := range texts {
			n := min([]int{1, 17, 40}[(i+step)%3], length-at[i])
			runs = append(runs, whole(seqs[i], texts[i][at[i]:at[i]+n], vocab))
		}
		if err := in.Forward(context.Background(), runs); err != nil {
			t.Fatal(err)
		}
		for i, r := range runs {
			equal(t, fmt.Sprintf("text %d beside others from token %d", i, at[i]), r.Logits, want[i][at[i]*vocab:(at[i]+len(r.Tokens))*vocab])
			at[i] += len(r.Tokens)
		}
	}
}

// rollback writes one text over another in the same cache, and asks for a few
// logits only.
func rollback(t *testing.T, in backend.Instance, texts [][]int32, want [][]float32) {
	vocab := in.Config().Vocab
	seq := newSequence(t, in, length)
	feed(t, in, seq, texts[1][:70], 70)
	for _, n := range []int{69, 64, 3, 0} {
		if err := seq.Truncate(n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			at := min(n+5, length)
			got := feed(t, in, seq, texts[1][n:at], 2)
			equal(t, fmt.Sprintf("after truncation to %d", n), got, want[1][n*vocab:at*vocab])
		}
	}
	r := backend.Run{Seq: seq, Tokens: texts[0], Want: []int{0, 64, length - 1}, Logits: make([]float32, 3*vocab)}
	if err := in.Forward(context.Background(), []backend.Run{r}); err != nil {
		t.Fatal(err)
	}
	for i, w := range r.Want {
		equal(t, fmt.Sprintf("only token %d wanted", w), r.Logits[i*vocab:(i+1)*vocab], want[0][w*vocab:(w+1)*vocab])
	}
	if seq.Len() != length || seq.Cap() < length {
		t.Errorf("sequence holds %d tokens of %d after %d", seq.Len(), seq.Cap(), length)
	}
}

// ranks asks for the largest logits alone, of two texts side by side and then of
// single tokens.
func ranks(t *testing.T, in backend.Ranker, texts [][]int32, want [][]float32) {
	vocab := in.Config().Vocab
	seqs := []backend.Sequence{newSequence(t, in, length), newSequence(t, in, length)}
	check := func(what string, got []backend.Ranked, logits []float32) {
		t.Helper()
		ids := make([]int32, vocab)
		for i := range ids {
			ids[i] = int32(i)
		}
		slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
		for i, g := range got {
			if id := ids[i]; g.ID != id || math.Float32bits(g.Logit) != math.Float32bits(logits[id]) {
				t.Fatalf("%s: rank %d of %d is token %d, %g, the reference's %d, %g", what, i, len(got), g.ID, g.Logit, id, logits[id])
			}
		}
	}
	const first = 20
	for _, k := range []int{1, min(backend.MaxRanked, vocab)} {
		best := make([]backend.Ranked, (first+2)*k)
		all := whole(seqs[0], texts[0][:first], vocab)
		all.Logits = nil
		two := backend.Run{Seq: seqs[1], Tokens: texts[1][:first], Want: []int{3, first - 1}}
		if err := in.ForwardRanked(context.Background(), []backend.Run{all, two}, k, best); err != nil {
			t.Fatal(err)
		}
		for i := range first {
			check(fmt.Sprintf("token %d", i), best[i*k:(i+1)*k], want[0][i*vocab:(i+1)*vocab])
		}
		for i, at := range two.Want {
			check(fmt.Sprintf("token %d of the second text", at), best[(first+i)*k:(first+i+1)*k], want[1][at*vocab:(at+1)*vocab])
		}
		for at := first; at < first+5; at++ {
			r := backend.Run{Seq: seqs[0], Tokens: texts[0][at : at+1], Want: []int{0}}
			if err := in.ForwardRanked(context.Background(), []backend.Run{r}, k, best[:k]); err != nil {
				t.Fatal(err)
			}
			check(fmt.Sprintf("token %d alone", at), best[:k], want[0][at*vocab:(at+1)*vocab])
		}
		for _, s := range seqs {
			if err := s.Truncate(0); err != nil {
				t.Fatal(err)
			}
		}
	}
	one := []backend.Run{{Seq: seqs[0], Tokens: texts[0][:1], Want: []int{0}}}
	for _, c := range []struct{ k, room int }{{0, 0}, {1, 2}, {2, 1}, {vocab + 1, vocab + 1}, {backend.MaxRanked + 1, backend.MaxRanked + 1}} {
		if in.ForwardRanked(context.Background(), one, c.k, make([]backend.Ranked, c.room)) == nil || seqs[0].Len() != 0 {
			t.Errorf("%d tokens ranked in room for %d", c.k, c.room)
		}
	}
}

func defaultModel() *ternary.Model { return ternarytest.Model(ternarytest.All()[0].Spec) }

func threads(t *testing.T, b backend.Backend) {
	m := defaultModel()
	ids := Text(&m.Config, 4)
	want := Reference(t, m, backend.Options{}, ids)
	for _, n := range []int{1, 2, 3, 5, 64} {
		in := load(t, b, m, backend.Options{Threads: n})
		equal(t, fmt.Sprintf("%d threads", n), feed(t, in, newSequence(t, in, length), ids, 50), want)
	}
}

func fork(t *testing.T, b backend.Backend) {
	m := defaultModel()
	in := load(t, b, m, backend.Options{})
	a, c := Text(&m.Config, 5), Text(&m.Config, 6)
	copy(c, a[:66])
	seq := newSequence(t, in, length)
	if empty, err := seq.Fork(); err != nil || empty.Len() != 0 || empty.Close() != nil {
		t.Errorf("fork of an empty sequence: %v", err)
	}
	feed(t, in, seq, a[:66], 66)
	other, err := seq.Fork()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	from := 66 * m.Vocab
	gotA := feed(t, in, seq, a[66:], 9)
	gotC := feed(t, in, other, c[66:], 9)
	equal(t, "original after a fork", gotA, Reference(t, m, backend.Options{}, a)[from:])
	equal(t, "fork", gotC, Reference(t, m, backend.Options{}, c)[from:])
}

// failures checks that a refused call changes nothing.
func failures(t *testing.T, b backend.Backend) {
	m := defaultModel()
	in := load(t, b, m, backend.Options{})
	ids := Text(&m.Config, 7)
	seq, other := newSequence(t, in, 20), newSequence(t, in, 20)
	feed(t, in, seq, ids[:10], 10)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	long := whole(seq, ids[10:21], m.Vocab)
	for _, c := range []struct {
		name string
		ctx  context.Context
		runs []backend.Run
		want error // nil: any
	}{
		{"context full", context.Background(), []backend.Run{long}, backend.ErrContext},
		{"second run full", context.Background(), []backend.Run{whole(other, ids[:3], m.Vocab), long}, backend.ErrContext},
		{"cancelled", cancelled, []backend.Run{whole(seq, ids[10:12], m.Vocab)}, context.Canceled},
		{"id too large", context.Background(), []backend.Run{whole(seq, []int32{int32(m.Vocab)}, m.Vocab)}, nil},
		{"id negative", context.Background(), []backend.Run{whole(seq, []int32{0, -1}, m.Vocab)}, nil},
		{"sequence twice", context.Background(), []backend.Run{whole(seq, ids[:1], m.Vocab), whole(seq, ids[:1], m.Vocab)}, nil},
		{"wanted outside", context.Background(), []backend.Run{{Seq: seq, Tokens: ids[:1], Want: []int{1}, Logits: make([]float32, m.Vocab)}}, nil},
		{"no room for logits", context.Background(), []backend.Run{{Seq: seq, Tokens: ids[:1], Want: []int{0}, Logits: make([]float32, m.Vocab-1)}}, nil},
	} {
		err := in.Forward(c.ctx, c.runs)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: error is %v", c.name, err)
		}
		if seq.Len() != 10 || other.Len() != 0 {
			t.Fatalf("%s: sequences hold %d and %d tokens after the error", c.name, seq.Len(), other.Len())
		}
	}
	var full *backend.ContextError
	if err := in.Forward(context.Background(), []backend.Run{long}); !errors.As(err, &full) || full.Need != 21 || full.Have != 20 {
		t.Errorf("context error without its numbers: %v", err)
	}
	if seq.Truncate(11) == nil || seq.Truncate(-1) == nil {
		t.Error("truncation to more than is there, or less than nothing, succeeds")
	}
	if _, err := in.NewSequence(0); err == nil {
		t.Error("a sequence without room succeeds")
	}
	got := feed(t, in, seq, ids[10:20], 10)
	equal(t, "after refused calls", got, Reference(t, m, backend.Options{}, ids[:20])[10*m.Vocab:])
	if err := in.Forward(context.Background(), nil); err != nil {
		t.Errorf("no runs: %v", err)
	}
}

// overflows checks that a value that leaves float32 is an error with the layer
// and tensor in it, and leaves the cache as it was.
func overflows(t *testing.T, b backend.Backend) {
	for _, c := range []struct {
		name string
		kv   backend.KV
		want string
		harm func(m *ternary.Model)
	}{
		{"f16 cache", backend.KVF16, "blk.1.attn_k or attn_v", func(m *ternary.Model) { fill(m.Layers[1].V.SLo, 1e9) }},
		{"residual", backend.KVF32, "blk.1.attn_norm", func(m *ternary.Model) {
			fill(m.Layers[0].Down.SLo, 0x1p40)
			fill(m.Layers[0].Gate.SLo, 0x1p40)
			fill(m.Layers[0].Up.SLo, 0x1p40)
		}},
	} {
		m := defaultModel()
		c.harm(m)
		in := load(t, b, m, backend.Options{KV: c.kv})
		seq := newSequence(t, in, 4)
		err := in.Forward(context.Background(), []backend.Run{whole(seq, []int32{1, 2, 3}, m.Vocab)})
		if !errors.Is(err, backend.ErrOverflow) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want one that names %s", c.name, err, c.want)
		}
		if seq.Len() != 0 {
			t.Errorf("%s: the sequence holds %d tokens after the error", c.name, seq.Len())
		}
	}
}

func refusals(t *testing.T, b backend.Backend) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		name string
		harm func(m *ternary.Model)
	}{
		{"attn_q", func(m *ternary.Model) { m.Layers[0].Q.SLo[3] = 1e-13 }},
		{"ffn_down", func(m *ternary.Model) { m.Layers[1].Down.SHi[3] = -inf }},
		{"token_embd", func(m *ternary.Model) { m.Head.Scale[5] = 2e12 }},
		{"output_norm", func(m *ternary.Model) { m.FinalNorm[5] = float32(math.NaN()) }},
		{"attn_q_norm", func(m *ternary.Model) { m.Layers[0].QNorm[5] = 1e-40 }},
		{"rms_norm_eps", func(m *ternary.Model) { m.RMSEps = 0 }},
	} {
		m := defaultModel()
		c.harm(m)
		in, err := b.Load(context.Background(), m, backend.Options{})
		if err == nil {
			in.Close()
		}
		if !errors.Is(err, backend.ErrRefused) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: error is %v", c.name, err)
		}
	}
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

func load(t testing.TB, b backend.Backend, m *ternary.Model, o backend.Options) backend.Instance {
	t.Helper()
	in, err := b.Load(context.Background(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

func newSequence(t testing.TB, in backend.Instance, context int) backend.Sequence {
	t.Helper()
	s, err := in.NewSequence(context)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// equal compares bits and reports the first that differs.
func equal(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d logits, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: logit %d is %g (0x%08x), the reference's %g (0x%08x)", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}
