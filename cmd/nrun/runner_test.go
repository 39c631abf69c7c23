package main

import (
	"errors"
	"strings"
	"testing"

	"npack/internal/cli"
	"npack/pack"
	"npack/runtime/backend"
	"npack/ternary"
)

// TestChooseWindow: case A-19. Without -c the context fits; with -c it fits or
// is refused with the largest that does.
func TestChooseWindow(t *testing.T) {
	const weights = 3_875_399_680
	cfg := &ternary.Config{Arch: ternary.Qwen3, Layers: 36, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, RotaryDims: 128,
		Intermediate: 12288, Vocab: 151936, MaxPosition: 40960}
	for _, c := range []struct {
		name   string
		asked  int
		kv     backend.KV
		free   int64
		tokens int
		why    string // of the choice, or the error with its hint
	}{
		{"all of it", 0, backend.KVF16, 24e9, 40960, "all that the model was made for"},
		{"what fits", 0, backend.KVF16, 8e9, 22250, "fits into 9/10 of the free memory, 8.00 GB, beside 3.88 GB of weights; the model was made for 40960"},
		{"what fits with a smaller cache", 0, backend.KVInt8, 8e9, 40960, "all that"},
		{"asked for", 4096, backend.KVF16, 8e9, 4096, "asked for with -c"},
		{"asked for too much", 40960, backend.KVF16, 8e9, 0, "a context of 40960 tokens needs 9.97 GB of memory; 8.00 GB free, of which 7.20 GB may be used: not enough space left|use -c 22250 or less"},
		{"more than the model's", 40961, backend.KVF16, 1e12, 0, "-c 40961: the model was made for 40960 tokens|use -c 40960 or less"},
		{"not even the weights", 0, backend.KVF16, 4e9, 0, "the model needs 3.91 GB of memory; 4.00 GB free, of which 3.60 GB may be used|nrun plan"},
		{"not even the weights, asked", 100, backend.KVF16, 2e9, 0, "the model needs 3.92 GB of memory; 2.00 GB free, of which 1.80 GB may be used|nrun plan"},
		{"unknown memory", 0, backend.KVF16, 0, 40960, "all that"},
	} {
		w, err := chooseWindow(c.asked, cfg, weights, c.kv, c.free)
		got := w.Why
		if err != nil {
			got = err.Error() + "|" + cli.Hint(err)
			if strings.Contains(got, "memory") != errors.Is(err, pack.ErrNoSpace) {
				t.Errorf("%s: kind of %v", c.name, err)
			}
		}
		front, back, _ := strings.Cut(c.why, "|")
		if w.Tokens != c.tokens || !strings.Contains(got, front) || !strings.Contains(got, back) {
			t.Errorf("%s: %d tokens, %s; want %d, %s", c.name, w.Tokens, got, c.tokens, c.why)
		}
	}
}
