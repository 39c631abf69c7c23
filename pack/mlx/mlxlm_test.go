package mlx_test

import (
	"fmt"
	"math"
	"os"
	"testing"

	"npack/internal/dense"
	"npack/internal/pylib"
	"npack/pack/mlx"
	"npack/pack/native"
	"npack/ternary"
	"npack/testdata/story"
)

// mlx-lm as it is published loads packs of all exact profiles, tied and untied,
// in one file and in several, and chooses the tokens that float64 chooses. With
// NPACK_EXHAUSTIVE=1 it does so with all trajectories and with the rounded packs,
// too: of 8 bits it chooses the same tokens, of 6 all but a few.
func TestMLXLM(t *testing.T) {
	f, err := native.OpenBytes("story.bin", story.Container)
	if err != nil {
		t.Fatal(err)
	}
	const stored = "../../testdata/story/trajectories.json"
	planes, _ := write(t, f.Model(), mlx.Options{Side: "../../testdata/story", Source: "story.bin"})
	names, pairs := []string{"story, planes"}, []string{planes, stored}
	small := func(m *ternary.Model, o mlx.Options, want mlx.Profile) {
		dir, p := write(t, m, o)
		if p.Profile != want {
			t.Errorf("profile %s, want %s", p.Profile, want)
		}
		names = append(names, "random, "+string(want))
		pairs = append(pairs, dir, pylib.Greedy(t, m, 3, 12))
	}
	small(model(64, 96, 96, false), mlx.Options{MaxShard: 30000}, mlx.Planes)
	single := model(96, 64, 96, true)
	linears(single, oneMagnitude)
	small(single, mlx.Options{}, mlx.Affine)
	three := model(64, 96, 96, false)
	linears(three, ratio(2, 3))
	small(three, mlx.Options{MaxShard: 30000}, mlx.Affine)
	small(model(96, 64, 96, true), mlx.Options{Profile: mlx.Dense}, mlx.Dense)

	load := pylib.Load{Limit: 3, Free: 1, Steps: 12}
	mayDiffer := map[string]float64{} // a share of the tokens; of exact packs none
	if os.Getenv("NPACK_EXHAUSTIVE") != "" {
		load = pylib.Load{Limit: 24, Free: 24, Steps: 64}
		for _, p := range []struct {
			bits  int
			share float64
		}{{8, 0}, {6, 0.01}} {
			name := fmt.Sprintf("story, nearest, %d bits", p.bits)
			dir, _ := write(t, f.Model(), mlx.Options{Profile: mlx.Nearest, Bits: p.bits, Side: "../../testdata/story", Source: "story.bin"})
			names, pairs, mayDiffer[name] = append(names, name), append(pairs, dir, stored), p.share
		}
	}
	answers := pylib.Decode(t, []string{"mlx_lm"}, "testdata/decode.py", load, pairs...)
	for i, a := range answers {
		s := pylib.Read(t, pairs[2*i+1])
		compared, different, lines := a.Differences(s)
		share, rounded := mayDiffer[names[i]]
		t.Logf("%s: %s: %d of %d tokens equal, margins within %.2g, perplexity %.9g", a.Program, names[i], compared-different, compared, a.MarginError(s), a.Perplexity())
		if compared < 36 || float64(different) > share*float64(compared) {
			t.Errorf("%s: %d of %d tokens differ: %q", names[i], different, compared, lines)
		}
		// Float32 sums of some hundred products in MLX's order: FORMAT.md §6.
		if e := a.MarginError(s); e > 1e-4 && !rounded {
			t.Errorf("%s: a margin is off by %g", names[i], e)
		}
	}
	checkPerplexity(t, &answers[0], load.Limit)
}

// checkPerplexity compares the perplexity over the stored windows with that of
// float64 arithmetic (dense.Perplexity, which takes a minute for all 24).
func checkPerplexity(t *testing.T, a *pylib.Answer, limit int) {
	t.Helper()
	want, ok := map[int]float64{3: storyPerplexity3, 24: storyPerplexity}[limit]
	if got := a.Perplexity(); !ok || math.Abs(got-want) > 1e-6*want {
		t.Errorf("perplexity %.9f, in float64 %.9f", got, want)
	}
}

// Perplexities of the story model over the first 3 and all 24 trajectories.
const (
	storyPerplexity3 = 3.274465763381150
	storyPerplexity  = 3.038280934538291
)

// The constants are what they say.
func TestPerplexityOfStory(t *testing.T) {
	f, err := native.OpenBytes("story.bin", story.Container)
	if err != nil {
		t.Fatal(err)
	}
	windows, want := pylib.Read(t, "../../testdata/story/trajectories.json").Windows()[:3], storyPerplexity3
	if os.Getenv("NPACK_EXHAUSTIVE") != "" {
		windows, want = pylib.Read(t, "../../testdata/story/trajectories.json").Windows(), storyPerplexity
	}
	got, err := dense.Perplexity(t.Context(), pylib.Exact(f.Model()), windows, func(_, _ int64) {})
	if err != nil || math.Abs(got-want) > 1e-12*want {
		t.Errorf("perplexity %.15f, %v", got, err)
	}
}
