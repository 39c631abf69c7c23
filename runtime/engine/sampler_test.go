package engine

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// oracle is the sampler as the package documentation words it: everything is
// sorted, nothing is clever.
func oracle(p Sampling, logits []float32, history []int32, u uint64) int32 {
	l := make([]float64, len(logits))
	for i, v := range logits {
		l[i] = float64(v)
	}
	count := map[int32]int{}
	window := history
	if p.PenaltyWindow > 0 {
		window = history[max(0, len(history)-p.PenaltyWindow):]
	}
	for _, id := range window {
		count[id]++
	}
	for id, n := range count {
		if p.Repetition != 0 {
			if l[id] > 0 {
				l[id] /= p.Repetition
			} else {
				l[id] *= p.Repetition
			}
		}
		l[id] = (l[id] - p.Presence) - float64(float64(n)*p.Frequency)
	}
	for id, m := range dryOracle(p.DRY, history) {
		if m >= p.DRY.AllowedLength {
			g := 1.0
			for i := p.DRY.AllowedLength; i < m && g < 1e9; i++ {
				g *= p.DRY.Base
			}
			l[id] -= float64(p.DRY.Multiplier * g)
		}
	}
	ids := make([]int, len(l))
	for i := range ids {
		ids[i] = i
	}
	slices.SortStableFunc(ids, func(a, b int) int { return cmp.Compare(l[b], l[a]) })
	if p.Temperature == 0 {
		return int32(ids[0])
	}
	if p.TopK > 0 {
		ids = ids[:min(p.TopK, len(ids))]
	}
	var weights []uint64
	var total uint64
	for _, id := range ids {
		w := uint64(math.RoundToEven(exp((l[id]-l[ids[0]])/p.Temperature) * (1 << 39)))
		weights = append(weights, w)
		total += w
	}
	if p.TopP > 0 && p.TopP < 1 {
		n, have := 0, uint64(0)
		for n < len(weights) && float64(have) < p.TopP*float64(total) {
			have += weights[n]
			n++
		}
		weights = weights[:n]
	}
	if p.MinP > 0 {
		n := 0
		for n < len(weights) && float64(weights[n]) >= p.MinP*float64(weights[0]) {
			n++
		}
		weights = weights[:n]
	}
	total = 0
	for _, w := range weights {
		total += w
	}
	point, _ := bits.Mul64(u, total)
	for i, w := range weights {
		if point < w {
			return int32(ids[i])
		}
		point -= w
	}
	panic("unreachable")
}

// dryOracle compares the end of the text with every earlier place.
func dryOracle(d DRY, history []int32) map[int32]int {
	match := map[int32]int{}
	if d.Multiplier == 0 {
		return match
	}
	if d.Window > 0 {
		history = history[max(0, len(history)-d.Window):]
	}
	for i := range len(history) - 1 {
		m := 0
		for m <= i && history[i-m] == history[len(history)-1-m] && !slices.Contains(d.Breakers, history[i-m]) {
			m++
		}
		if m > 0 {
			match[history[i+1]] = max(match[history[i+1]], m)
		}
	}
	return match
}

// settings are sampler settings that meet every branch.
func settings(rng *rand.Rand) Sampling {
	choose := func(v ...float64) float64 { return v[rng.IntN(len(v))] }
	n := func(v ...int) int { return v[rng.IntN(len(v))] }
	return Sampling{
		PenaltyWindow: n(0, 1, 8, 1000),
		Repetition:    choose(0, 1, 1.1, 1.5, 0.8),
		Presence:      choose(0, 0, 0.5, -0.25),
		Frequency:     choose(0, 0, 0.3, -0.1),
		DRY: DRY{Multiplier: choose(0, 0, 0.8, 3), Base: choose(1, 1.75, 4), AllowedLength: n(0, 1, 2, 3), Window: n(0, 1, 16),
			Breakers: [][]int32{nil, {3}, {0, 1, 2}, {-5, 1 << 30}}[rng.IntN(4)]},
		Temperature: choose(0, 0.01, 0.7, 1, 5),
		TopK:        n(0, 0, 1, 2, 5, 40, 10000),
		TopP:        choose(0, 1, 0.9, 0.5, 1e-9, 0.99999),
		MinP:        choose(0, 0, 0.05, 0.5, 1, 1e-13),
	}
}

// TestSamplerAgainstOracle compares choices over random settings, with coarse
// logits so that ties are common, and small vocabularies so that texts repeat.
func TestSamplerAgainstOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	var s Sampler
	cases := 20_000
	if testing.Short() { // under an emulator
		cases = 2_000
	}
	for i := range cases {
		p := settings(rng)
		p.Seed = rng.Uint64()
		logits := make([]float32, 1+rng.IntN(60))
		for j := range logits {
			logits[j] = float32(rng.IntN(40)-20) / float32(1+rng.IntN(3))
		}
		history := make([]int32, rng.IntN(40))
		for j := range history {
			history[j] = int32(rng.IntN(min(4, len(logits))))
		}
		if err := s.Reset(p); err != nil {
			t.Fatal(err)
		}
		ref := rand.NewPCG(p.Seed, 0)
		for range 3 {
			before := slices.Clone(logits)
			got := s.Next(logits, history)
			var u uint64
			if p.Temperature > 0 {
				u = ref.Uint64()
			}
			if want := oracle(p, logits, history, u); got != want {
				t.Fatalf("case %d: chose %d, want %d\n%+v\nlogits %v\nhistory %v", i, got, want, p, logits, history)
			}
			if !slices.Equal(before, logits) {
				t.Fatalf("case %d: logits were changed", i)
			}
			history = append(history, got)
		}
	}
}

// TestSamplerLargeVocabulary does the same for the size of a real vocabulary.
func TestSamplerLargeVocabulary(t *testing.T) {
	logits := noise(151_936, 3)
	for i, p := range []Sampling{
		{Temperature: 1}, {Temperature: 0.7, TopK: 20, TopP: 0.9}, {Temperature: 1, TopP: 0.95}, {Temperature: 2, MinP: 0.1},
		{Temperature: 100}, {Temperature: 0.3, MinP: 1e-13}, {Temperature: 1, TopK: 151_935}, {Repetition: 1.2},
	} {
		s, err := NewSampler(p)
		if err != nil {
			t.Fatal(err)
		}
		var u uint64
		if p.Temperature > 0 {
			u = rand.NewPCG(0, 0).Uint64()
		}
		history := []int32{5, 77, 151_935}
		if got, want := s.Next(logits, history), oracle(p, logits, history, u); got != want {
			t.Errorf("settings %d: chose %d, want %d", i, got, want)
		}
	}
}

// noise returns logits as a model's, most near 0 and few far out, by sums alone:
// they are the same on every platform.
func noise(n int, seed uint64) []float32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	l := make([]float32, n)
	for i := range l {
		for range 6 {
			l[i] += float32(rng.IntN(1<<14)-1<<13) / (1 << 11)
		}
	}
	return l
}

// TestSamplerFrequencies: tokens come up as often as their probabilities say.
func TestSamplerFrequencies(t *testing.T) {
	logits := []float32{0, 1, 2, 3, -50}
	for _, c := range []struct {
		p    Sampling
		want []float64 // shares
	}{
		{Sampling{Temperature: 1}, softmax(logits, 1)},
		{Sampling{Temperature: 2}, softmax(logits, 2)},
		{Sampling{Temperature: 1, TopK: 2}, append([]float64{0, 0}, softmax(logits[2:4], 1)...)},
		{Sampling{Temperature: 1, TopP: 0.6}, []float64{0, 0, 0, 1}},                                       // 0.644 alone is enough
		{Sampling{Temperature: 1, MinP: 0.3}, append([]float64{0, 0}, softmax(logits[2:4], 1)...)},         // e^-1 = 0.37
		{Sampling{Temperature: 1, TopP: 0.9, MinP: 0.1}, append([]float64{0}, softmax(logits[1:4], 1)...)}, // 0.644+0.237+0.087
	} {
		s, err := NewSampler(c.p)
		if err != nil {
			t.Fatal(err)
		}
		const n = 20_000
		got := make([]float64, len(logits))
		for range n {
			got[s.Next(logits, nil)] += 1.0 / n
		}
		for id := range got {
			want := 0.0
			if id < len(c.want) {
				want = c.want[id]
			}
			if sd := math.Sqrt(max(0, want*(1-want)) / n); math.Abs(got[id]-want) > 4*sd+1e-9 {
				t.Errorf("%+v: token %d has share %.4f, want %.4f", c.p, id, got[id], want)
			}
		}
	}
}

func softmax(logits []float32, temperature float64) []float64 {
	p, sum := make([]float64, len(logits)), 0.0
	for i, l := range logits {
		p[i] = math.Exp(float64(l) / temperature)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// TestSamplerGolden holds the promise "a seed gives the same text": a stored
// sequence of choices, made with all steps at work.
func TestSamplerGolden(t *testing.T) {
	const file = "testdata/sampler.golden"
	var b strings.Builder
	fmt.Fprintln(&b, "# 96 choices a line over the logits noise(512, step); go test ./runtime/engine -update rewrites this file")
	for _, p := range []Sampling{
		{Temperature: 1, Seed: 1},
		{Temperature: 0.7, TopK: 20, TopP: 0.9, Seed: 42},
		{Temperature: 1.5, MinP: 0.02, Seed: 1 << 63},
		{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.01, Repetition: 1.1, Presence: 0.2, Frequency: 0.1, PenaltyWindow: 64, Seed: 7,
			DRY: DRY{Multiplier: 0.8, Base: 1.75, AllowedLength: 1, Breakers: []int32{9}}},
		{Repetition: 1.3, Frequency: 0.2},
	} {
		s, err := NewSampler(p)
		if err != nil {
			t.Fatal(err)
		}
		var history []int32
		for i := range 96 {
			history = append(history, s.Next(noise(512, uint64(i%32)), history))
		}
		fmt.Fprintln(&b, strings.Trim(strings.ReplaceAll(fmt.Sprint(history), " ", ","), "[]"))
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != strings.ReplaceAll(string(want), "\r\n", "\n") {
		t.Errorf("choices differ from %s:\n%s", file, b.String())
	}
}

func TestSamplingValidate(t *testing.T) {
	for _, c := range []struct {
		p    Sampling
		want string
	}{
		{Sampling{}, ""},
		{Sampling{Temperature: 0.7, TopK: 20, TopP: 0.95}, ""},
		{Sampling{Temperature: -1}, "temperature -1"},
		{Sampling{Temperature: math.NaN()}, "temperature NaN"},
		{Sampling{Temperature: 1e-9}, "use 0 for greedy"},
		{Sampling{TopP: 1.1}, "top-p 1.1"},
		{Sampling{MinP: -0.1}, "min-p -0.1"},
		{Sampling{TopK: -1}, "top-k -1"},
		{Sampling{Repetition: math.Inf(1)}, "repetition penalty"},
		{Sampling{Frequency: 1e9}, "frequency penalty"},
		{Sampling{PenaltyWindow: -1}, "penalty window -1"},
		{Sampling{DRY: DRY{Multiplier: 1, Base: 0.5}}, "dry base 0.5 is below 1"},
		{Sampling{DRY: DRY{AllowedLength: -1}}, "dry allowed length -1"},
	} {
		_, err := NewSampler(c.p)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: error %v, want %q", c.p, err, c.want)
		}
	}
}

func TestMargin(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		id     int32
		margin float64
	}{
		{[]float32{1}, 0, math.Inf(1)},
		{[]float32{1, 3, 2}, 1, 1},
		{[]float32{3, 1, 3}, 0, 0},
		{[]float32{-1, -3, -0.5, -0.75}, 2, 0.25},
		{[]float32{5, 4, 4.5}, 0, 0.5},
		{[]float32{1, 2, 3}, 2, 1},
	} {
		if id, m := Margin(c.logits); id != c.id || m != c.margin || Greedy(c.logits) != c.id {
			t.Errorf("%v: %d with margin %v (greedy %d), want %d with %v", c.logits, id, m, Greedy(c.logits), c.id, c.margin)
		}
	}
}

func BenchmarkSampler(b *testing.B) {
	logits := noise(151_936, 1)
	history := make([]int32, 2048)
	for i := range history {
		history[i] = int32(i * 31 % 5000)
	}
	for _, c := range []struct {
		name string
		p    Sampling
	}{
		{"greedy", Sampling{}},
		{"top-k", Sampling{Temperature: 0.7, TopK: 20, TopP: 0.9}},
		{"top-p", Sampling{Temperature: 0.7, TopP: 0.9}},
		{"plain", Sampling{Temperature: 1}},
		{"all", Sampling{Temperature: 0.7, TopK: 20, TopP: 0.9, MinP: 0.05, Repetition: 1.1, Frequency: 0.1, DRY: DRY{Multiplier: 0.8, Base: 1.75, AllowedLength: 2}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, err := NewSampler(c.p)
			if err != nil {
				b.Fatal(err)
			}
			s.Next(logits, history)
			b.ReportAllocs()
			for b.Loop() {
				s.Next(logits, history)
			}
		})
	}
}
