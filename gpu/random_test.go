package gpu_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"npack/gpu/gputest"
	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary/ternarytest"
)

// TestRandom does what sessions do, in random order, here and by the reference:
// single tokens, chosen ones and others, drafts that are cut back, prompts, forks,
// several sequences at once, over several steps of the cache.
func TestRandom(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			d := &gputest.Recorder{Device: gputest.New([]int{89, 70, 100}[seed])}
			randomSessions(t, d, rand.New(rand.NewPCG(seed, 2)), backend.KV(seed))
			if d.Plays < 50 || d.Open != 0 || d.Buffers() != 0 {
				t.Errorf("recordings played %d times, %d left open; %d buffers left", d.Plays, d.Open, d.Buffers())
			}
		})
	}
}

// twin is a sequence here and in the reference.
type twin struct{ here, there backend.Sequence }

func randomSessions(t *testing.T, d *gputest.Recorder, rng *rand.Rand, kv backend.KV) {
	const room = 600
	s := ternarytest.All()[0].Spec
	s.Layers, s.Hidden, s.Intermediate, s.Heads, s.KVHeads = 1, 20, 24, 2, 1
	m := ternarytest.Model(s)
	o := backend.Options{Activations: backend.Int8, KV: kv, Threads: 1}
	ctx := context.Background()
	in, err := unproven(t, d, 0).Load(ctx, m, o)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	ref, err := reference.Backend{}.Load(ctx, m, o)
	if err != nil {
		t.Fatal(err)
	}
	var twins []twin
	open := func() (w twin) {
		if w.here, err = in.NewSequence(room); err != nil {
			t.Fatal(err)
		}
		if w.there, err = ref.NewSequence(room); err != nil {
			t.Fatal(err)
		}
		return w
	}
	twins = append(twins, open(), open())
	defer func() {
		for _, w := range twins {
			w.here.Close()
		}
	}()
	chosen := int32(0) // the last greedy choice

	// pass runs the tokens of some sequences, of which some logits are wanted, ranked
	// or not.
	pass := func(what string, k int, which []int, tokens ...[]int32) {
		t.Helper()
		var runs, want []backend.Run
		n, part := 0, rng.IntN(4) // of the rows one in so many is wanted, or none
		for i, w := range which {
			r := backend.Run{Tokens: tokens[i]}
			for j := range r.Tokens {
				if part > 0 && j%part == 0 || len(r.Tokens) == 1 {
					r.Want = append(r.Want, j)
				}
			}
			r.Logits = make([]float32, len(r.Want)*m.Vocab)
			n += len(r.Want)
			r.Seq = twins[w].there
			want = append(want, r)
			r.Seq, r.Logits = twins[w].here, nil
			if k == 0 {
				r.Logits = make([]float32, len(r.Want)*m.Vocab)
			}
			runs = append(runs, r)
		}
		best := make([]backend.Ranked, n*k)
		if k == 0 {
			err = in.Forward(ctx, runs)
		} else {
			err = in.(backend.Ranker).ForwardRanked(ctx, runs, k, best)
		}
		if err != nil {
			t.Fatal(what, err)
		}
		if err := ref.Forward(ctx, want); err != nil {
			t.Fatal(err)
		}
		for i, r := range want {
			for j := range r.Want {
				row := r.Logits[j*m.Vocab : (j+1)*m.Vocab]
				if k == 0 {
					for id, v := range runs[i].Logits[j*m.Vocab : (j+1)*m.Vocab] {
						if math.Float32bits(v) != math.Float32bits(row[id]) {
							t.Fatalf("%s: run %d, token %d: logit %d is %g, want %g", what, i, j, id, v, row[id])
						}
					}
					continue
				}
				for rank, b := range best[:k] {
					if top := slices.Max(row); b.Logit != top || int(b.ID) != slices.Index(row, top) {
						t.Fatalf("%s: run %d, token %d: rank %d is %v, want %d, %g", what, i, j, rank, b, slices.Index(row, top), top)
					}
					row[b.ID] = float32(math.Inf(-1))
				}
				chosen, best = best[0].ID, best[k:]
			}
		}
	}
	text := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = rng.Int32N(int32(m.Vocab))
		}
		return ids
	}
	for step := range 120 {
		w := rng.IntN(len(twins))
		if room-twins[w].here.Len() < 40 {
			n := rng.IntN(300)
			twins[w].here.Truncate(n)
			twins[w].there.Truncate(n)
		}
		k := []int{0, 1, 1, 5}[rng.IntN(4)]
		what := fmt.Sprintf("step %d, k %d", step, k)
		switch rng.IntN(8) {
		case 0: // a prompt
			pass(what+", prompt", k, []int{w}, text(1+rng.IntN(36)))
		case 1: // two sequences
			pass(what+", two", k, []int{0, 1}, text(1+rng.IntN(5)), text(1+rng.IntN(5)))
		case 2: // a draft, of which a part is kept
			n, at := 1+rng.IntN(7), twins[w].here.Len()
			pass(what+", draft", k, []int{w}, text(n))
			n = at + rng.IntN(n+1)
			twins[w].here.Truncate(n)
			twins[w].there.Truncate(n)
		case 3: // a fork takes the place of another sequence
			old := twins[1-w]
			var f twin
			if f.here, err = twins[w].here.Fork(); err != nil {
				t.Fatal(err)
			}
			if f.there, err = twins[w].there.Fork(); err != nil {
				t.Fatal(err)
			}
			twins[1-w] = f
			old.here.Close()
		default: // an answer, token by token
			for range 8 {
				pass(what+", choice", 1, []int{w}, []int32{chosen})
			}
			switch rng.IntN(3) {
			case 0: // that goes on with another token
				pass(what+", other", k, []int{w}, text(1))
			case 1: // whose end is replaced by the last choice
				n := twins[w].here.Len() - 3
				twins[w].here.Truncate(n)
				twins[w].there.Truncate(n)
				pass(what+", again", k, []int{w}, []int32{chosen})
			}
		}
		for _, w := range twins {
			if w.here.Len() != w.there.Len() {
				t.Fatalf("%s: %d tokens, want %d", what, w.here.Len(), w.there.Len())
			}
			if room-w.here.Len() < 40 {
				n := rng.IntN(300)
				w.here.Truncate(n)
				w.there.Truncate(n)
			}
		}
	}
}
