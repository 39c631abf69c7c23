package main

import (
	"errors"
	"strings"
	"testing"

	"npack/cpu"
	"npack/internal/cli"
	"npack/pack"
	"npack/runtime/backend"
	"npack/ternary/ternarytest"
)

// TestWindow: case A-19. Without -c the context fits; with -c it fits or is
// refused with the largest that does.
func TestWindow(t *testing.T) {
	m := ternarytest.Outline(ternarytest.Qwen8B())
	m.Release = func([]byte) {} // its pages can be given back
	limit := func(bytes int64) func(*need) {
		return func(n *need) { n.limit, n.program = bytes, 20e6; n.within() }
	}
	free := func(bytes int64) func(*need) { return func(n *need) { n.free(bytes) } }
	for _, c := range []struct {
		name   string
		asked  int
		kv     backend.KV
		memory func(*need)
		tokens int
		why    string // of the choice, or the error with its hint
	}{
		{"all of it", 0, backend.KVF16, free(24e9), 40960, "all that the model was made for"},
		{"what fits", 0, backend.KVF16, free(8e9), 26368, "fits into 9/10 of the free memory, 8.00 GB, beside 3.24 GB of weights; the model was made for 40960"},
		{"what fits with a smaller cache", 0, backend.KVInt8, free(8e9), 40960, "all that"},
		{"asked for", 4096, backend.KVF16, free(8e9), 4096, "asked for with -c"},
		{"asked for too much", 40960, backend.KVF16, free(8e9), 0, "a context of 40960 tokens needs 9.34 GB of memory; 8.00 GB free, of which 7.20 GB may be used; the largest context that fits has 26368 tokens: not enough space left|use -c 26368 or less, or a smaller cache: --kv int8"},
		{"more than the model's", 40961, backend.KVF16, free(1e12), 0, "-c 40961: the model was made for 40960 tokens|use -c 40960 or less"},
		{"not even the weights", 0, backend.KVF16, free(3.5e9), 0, "the model needs 3.31 GB of memory; 3.50 GB free, of which 3.15 GB may be used|nrun plan"},
		{"not even the weights, asked", 100, backend.KVF16, free(2e9), 0, "the model needs 3.31 GB of memory; 2.00 GB free, of which 1.80 GB may be used|nrun plan"},
		{"unknown memory", 0, backend.KVF16, func(*need) {}, 40960, "all that"},
		{"within a limit", 0, backend.KVF16, limit(6e9), 18176, "what fits into --memory-limit 6.00 GB, of which the program takes 20.0 MB, beside 3.24 GB"},
		{"asked for within a limit", 8192, backend.KVF16, limit(6e9), 8192, "asked for with -c"},
		{"asked for beyond a limit", 20000, backend.KVInt8, limit(4.5e9), 0, "a context of 20000 tokens needs 4.83 GB of memory; --memory-limit 4.50 GB, of which the program takes 20.0 MB; the largest context that fits has 15616 tokens: not enough space left|use -c 15616 or less"},
		{"a limit below the program", 0, backend.KVF16, limit(1e6), 0, "the model needs 3.31 GB of memory; --memory-limit 1.00 MB, of which the program takes 20.0 MB|nrun plan"},
	} {
		n := need{asked: c.asked, most: -1}
		c.memory(&n)
		w, err := n.window(cpu.Backend{Kernel: "generic"}, m, backend.Options{KV: c.kv, Threads: 2})
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

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"1": 1, "800M": 800e6, "6GB": 6e9, "6gb": 6e9, "1.5GiB": 3 << 29, "2 KiB": 2048, "1t": 1e12, "1024 bytes": 0, "": 0, "GB": 0,
		"-1GB": 0, "0": 0, "6G5": 0, "1e40": 0, "1iB": 0, "nan": 0, "1.5EB": 0, "12B": 12,
	} {
		got, err := parseSize(s)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", s, got, err, want)
		}
	}
}
