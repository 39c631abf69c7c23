package kernels_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"npack/gpu"
	"npack/gpu/gputest"
	"npack/gpu/kernels"
	"npack/internal/cli"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

// sheet is what NVIDIA's data sheets and its table of instruction rates (CUDA
// Programming Guide, arithmetic instructions) say of a card.
type sheet struct {
	name       string
	capability int
	processors float64
	clock      float64 // boost, Hz
	bandwidth  float64 // of the memory, bytes a second
	l2         int64   // second-level cache, bytes
	floats     float64 // f32 instructions of warps a clock and multiprocessor; integer ones are 2 everywhere, all together 4
	int8       float64 // operations a second of the matrix units, two a product, without sparsity; 0: of no use to the kernels
}

var sheets = []sheet{
	{"T4", 75, 40, 1.59e9, 320e9, 4 << 20, 2, 0},
	{"V100", 70, 80, 1.53e9, 900e9, 6 << 20, 2, 0},
	{"L4", 89, 58, 2.04e9, 300e9, 48 << 20, 4, 242e12},
	{"A100-40", 80, 108, 1.41e9, 1555e9, 40 << 20, 2, 624e12},
	{"H100", 90, 132, 1.98e9, 3350e9, 50 << 20, 4, 1979e12},
	{"H200", 90, 132, 1.98e9, 4800e9, 50 << 20, 4, 1979e12},
}

// launchTime is assumed, in seconds: from the end of a kernel of a recording to the
// start of the next.
const launchTime = 2e-6

// demand is what launches of a kernel ask of a card.
type demand struct {
	bytes int64 // of weights or cache, each once
	grids int64 // how often they are read if the second-level cache does not hold them
	size  int64 // what it has to hold for that
	count
}

// seconds is the time of the slowest of what d asks for, in parts.
func (s *sheet) seconds(d demand) (reading, working float64) {
	bytes := d.bytes
	if d.size > s.l2 {
		bytes *= d.grids
	}
	clocks := max(float64(d.all)/4, float64(d.ints)/2, float64(d.floats)/s.floats) / s.processors
	working = clocks / s.clock
	if s.int8 > 0 {
		working = max(working, float64(d.matrix)*2*16*8*32/s.int8)
	}
	return float64(bytes) / s.bandwidth, working
}

// pass is n columns of one text that go through a model together, at a depth.
type pass struct {
	ternary.Config
	n, depth int
}

const planes = 3 // of exact activations

// counts are of blocks that were counted before.
type counts map[block]count

func (c counts) of(t testing.TB, b block) count {
	if _, ok := c[b]; !ok {
		c[b] = b.count(t)
	}
	return c[b]
}

// demands lists what a pass asks of a card. Norms, activations, rotation and choice
// are left out: they take little but their launch.
func (p pass) demands(t testing.TB, known counts, capability int) (list []demand) {
	add := func(kernel string, n, rows, cols int, bytes int64, times int) {
		b := block{kernel, 80, cols, n, planes}
		if !kernels.HasMMA(capability) {
			b.capability = 70
		}
		x, y := kernels.Strips(rows), n
		switch kernel {
		case "tern_mma", "head_mma":
			b.n, y = min(n, 8), (n*planes+23)/24
		case "tern_many":
			b.n, x, y = min(n, 24), (x+7)/8, (n*planes+71)/72
		default:
			b.n = 1
		}
		list = append(list, demand{int64(times) * bytes, int64(y), bytes, known.of(t, b).times(int64(times * x * y))})
	}
	for _, l := range []struct{ rows, cols int }{
		{p.QDim() + 2*p.KVDim(), p.Hidden}, {p.Hidden, p.QDim()}, {2 * p.Intermediate, p.Hidden}, {p.Hidden, p.Intermediate},
	} {
		strips := kernels.Strips(l.rows)
		bytes := kernels.PlaneBytes(strips, kernels.Tiles(l.cols)) + 8*kernels.StripRows*int64(strips)
		add(kernels.Linear(capability, p.n, planes), p.n, l.rows, l.cols, bytes, p.Layers)
	}
	wanted := p.n
	if wanted > engine.MaxDraft+1 {
		wanted = 1 // of a prompt the last
	}
	strips := kernels.Strips(p.Vocab)
	bytes := kernels.TableBytes(strips, kernels.Tiles(p.Hidden)) + 4*kernels.StripRows*int64(strips)
	add(kernels.Head(capability, wanted), wanted, p.Vocab, p.Hidden, bytes, 1)
	return list
}

// attention lists what attention of a pass asks of any card.
func (p pass) attention(t testing.TB) []demand {
	chunks := (p.depth + kernels.Chunk - 1) / kernels.Chunk
	attn, join := attentionBlocks(t, &p.Config, chunks)
	cache := int64(chunks*kernels.Chunk) * 2 * int64(p.KVDim()) * 2
	groups := p.KVHeads * ((p.Heads/p.KVHeads + 3) / 4)
	return []demand{{int64(p.Layers) * cache, int64(p.n), cache, attn.times(int64(p.Layers * p.n * chunks * groups))},
		{count: join.times(int64(p.Layers * p.n * p.Heads))}}
}

// launches counts those of a pass of n columns of a model with so many layers, of
// which each column's largest logit is wanted.
func launches(t testing.TB, layers, n int) (launched int) {
	spec := ternarytest.All()[0].Spec
	spec.Layers = layers
	d := gputest.New(89)
	d.Idle = true
	b, err := gpu.New("plain", d, gpu.Options{Unproven: true})
	if err != nil {
		t.Fatal(err)
	}
	in, err := b.Load(context.Background(), ternarytest.Model(spec), backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	seq, err := in.NewSequence(n)
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	run := backend.Run{Seq: seq, Tokens: make([]int32, n)}
	for i := range n {
		run.Want = append(run.Want, i)
	}
	if err := in.(backend.Ranker).ForwardRanked(context.Background(), []backend.Run{run}, 1, make([]backend.Ranked, n)); err != nil {
		t.Fatal(err)
	}
	for _, k := range d.Launches {
		launched += k
	}
	return launched
}

// bound is the least time of a pass on a card, in seconds.
type bound struct{ reading, working, launching, all float64 }

// bounds computes them for the 8B and the 0.6B, whose greedy tokens are so many
// launches.
type bounds struct {
	t         testing.TB
	launches  [2]int
	known     counts
	attention map[pass][]demand // which no card does otherwise
}

// token is the bound of a pass of the 8B of n columns, guess of one column of the 0.6B.
func (b *bounds) token(s *sheet, n, depth int) bound {
	return b.of(s, pass{ternarytest.Qwen8B(), n, depth}, b.launches[0])
}
func (b *bounds) guess(s *sheet, depth int) bound {
	return b.of(s, pass{ternarytest.Qwen06B(), 1, depth}, b.launches[1])
}

func (b *bounds) of(s *sheet, p pass, launched int) (x bound) {
	if _, ok := b.attention[p]; !ok {
		b.attention[p] = p.attention(b.t)
	}
	for _, d := range slices.Concat(p.demands(b.t, b.known, s.capability), b.attention[p]) {
		reading, working := s.seconds(d)
		x.reading, x.working, x.all = x.reading+reading, x.working+working, x.all+max(reading, working)
	}
	x.launching = float64(launched) * launchTime
	x.all += x.launching
	return x
}

// gain is how much faster decoding is with a draft of the best length, up to the
// engine's most, whose guesses are right with a probability.
func (b *bounds) gain(s *sheet, depth int, right float64) (best float64, length int) {
	plain, guess := b.token(s, 1, depth), b.guess(s, depth)
	for n := 1; n <= engine.MaxDraft; n++ {
		tokens := (1 - math.Pow(right, float64(n+1))) / (1 - right) // of a pass, its own included
		if gain := tokens * plain.all / (b.token(s, n+1, depth).all + float64(n)*guess.all); gain > best {
			best, length = gain, n
		}
	}
	return best, length
}

// TestBounds prints the tables of docs/gpu.md on memory and on what bounds decoding,
// and checks what is concluded there.
func TestBounds(t *testing.T) {
	large, small := ternarytest.Qwen8B(), ternarytest.Qwen06B()
	b := &bounds{t: t, known: counts{}, attention: map[pass][]demand{}}
	b.launches[0], b.launches[1] = launches(t, large.Layers, 1), launches(t, small.Layers, 1)
	if many := launches(t, large.Layers, engine.MaxDraft+1); b.launches != [2]int{401, 313} || many != 401 {
		t.Errorf("tokens take %d launches, %d columns %d", b.launches, engine.MaxDraft+1, many)
	}
	plans := [2]backend.Memory{}
	for i, c := range []ternary.Config{large, small} {
		plans[i] = gpu.Plan(ternarytest.Outline(c), backend.Options{}, 4096, new(gpu.Backend).Chunk())
		var bytes int64
		for _, d := range (pass{c, 1, 1}).demands(t, b.known, 89) {
			bytes += d.bytes
		}
		if bytes > plans[i].Token || bytes < plans[i].Token*999/1000 {
			t.Errorf("the linears and the output embedding are %d bytes, of %d that a token reads", bytes, plans[i].Token)
		}
	}
	memory := []string{"| bytes | 8B, 4,096 tokens | 0.6B, 4,096 tokens |", "|---|--:|--:|"}
	for _, r := range []struct {
		name string
		of   func(m *backend.Memory) string
	}{
		{"weights", func(m *backend.Memory) string { return cli.Group(m.Weights) }},
		{"cache, f16, with a layer to grow", func(m *backend.Memory) string { return cli.Group(m.Cache) }},
		{"activations of 512 columns, partial attention, rotary table", func(m *backend.Memory) string { return cli.Group(m.Buffers) }},
		{"**together**", func(m *backend.Memory) string {
			return fmt.Sprintf("**%.2f GiB**", float64(m.Weights+m.Cache+m.Buffers)/(1<<30))
		}},
		{"of the weights, read for a token", func(m *backend.Memory) string { return cli.Group(m.Token) }},
	} {
		memory = append(memory, fmt.Sprintf("| %s | %s | %s |", r.name, r.of(&plans[0]), r.of(&plans[1])))
	}
	documented(t, "memory", memory)

	table := []string{"| |", "|---|"}
	row := func(name string, cell func(s *sheet) string) {
		line := "| " + name + " |"
		for i := range sheets {
			line += " " + cell(&sheets[i]) + " |"
		}
		table = append(table, line)
	}
	for _, s := range sheets {
		table[0] += " " + s.name + " |"
		table[1] += "--:|"
	}
	row("GB/s", func(s *sheet) string { return group(s.bandwidth / 1e9) })
	row("multiprocessors at GHz", func(s *sheet) string { return fmt.Sprintf("%g at %g", s.processors, s.clock/1e9) })
	row("int8 TOPS", func(s *sheet) string {
		if s.int8 == 0 {
			return "-"
		}
		return group(s.int8 / 1e12)
	})
	for _, depth := range []int{128, 4096} {
		token := func(s *sheet) bound { return b.token(s, 1, depth) }
		row(fmt.Sprintf("**%s positions**: reading, ms", cli.Group(int64(depth))), func(s *sheet) string { return fmt.Sprintf("%.2f", 1e3*token(s).reading) })
		row("instructions, ms", func(s *sheet) string { return fmt.Sprintf("%.2f", 1e3*token(s).working) })
		row("launches, ms", func(s *sheet) string { return fmt.Sprintf("%.2f", 1e3*token(s).launching) })
		row("tokens/s", func(s *sheet) string { return fmt.Sprintf("**%.0f**", 1/token(s).all) })
		row(fmt.Sprintf("a pass of %d columns, in tokens", engine.MaxDraft+1), func(s *sheet) string {
			return fmt.Sprintf("%.2f", b.token(s, engine.MaxDraft+1, depth).all/token(s).all)
		})
		for _, right := range []float64{0.6, 0.8, 0.9} {
			row(fmt.Sprintf("drafted, %.0f %% right", 100*right), func(s *sheet) string {
				best, length := b.gain(s, depth, right)
				return fmt.Sprintf("%.2f (%d)", best, length)
			})
		}
	}
	prompt := pass{large, 512, 256} // 256 positions are seen on average
	row("**prompt of 512**, tokens/s", func(s *sheet) string { return group(512 / b.of(s, prompt, b.launches[0]).all) })
	row("attention in it", func(s *sheet) string {
		var time float64
		for _, d := range b.attention[prompt] {
			reading, working := s.seconds(d)
			time += max(reading, working)
		}
		return fmt.Sprintf("%.0f %%", 100*time/b.of(s, prompt, b.launches[0]).all)
	})
	documented(t, "bounds", table)

	for _, c := range []struct {
		said string
		by   func(s *sheet) bool
		of   string // the cards
	}{
		{"is bound by memory", func(s *sheet) bool {
			x := b.token(s, 1, 128)
			return x.working < x.reading && x.launching < x.reading/10
		}, "T4 L4"},
		{"spends as much on launches as on weights", func(s *sheet) bool {
			x := b.token(s, 1, 128)
			return x.launching > 0.8*x.reading
		}, "H100 H200"},
		{"is bound by instructions in attention to long texts", func(s *sheet) bool {
			reading, working := s.seconds(b.attention[pass{large, 1, 4096}][0])
			return working > reading
		}, "T4 V100 A100-40 H100 H200"},
		{"is bound by int8 products in the linears of prompts", func(s *sheet) bool {
			linears := prompt.demands(t, b.known, s.capability)[:4]
			return s.int8 > 0 && !slices.ContainsFunc(linears, func(d demand) bool {
				_, working := s.seconds(d)
				d.matrix = 0
				_, rest := s.seconds(d)
				return rest == working
			})
		}, "L4 A100-40"},
		{"gains by drafts in short texts", func(s *sheet) bool {
			gain, _ := b.gain(s, 128, 0.8)
			return gain > 1.1
		}, "L4 A100-40 H100 H200"},
		{"gains by drafts in long texts", func(s *sheet) bool {
			gain, _ := b.gain(s, 4096, 0.8)
			return gain > 1.1
		}, "L4"},
	} {
		var cards []string
		for i := range sheets {
			if c.by(&sheets[i]) {
				cards = append(cards, sheets[i].name)
			}
		}
		if is := strings.Join(cards, " "); is != c.of {
			t.Errorf("%s: docs/gpu.md says %s, it is %s", c.said, c.of, is)
		}
	}
}

// group writes a number without its fraction.
func group(v float64) string { return cli.Group(int64(math.Round(v))) }

// documented prints a table and compares it with the one of that name in docs/gpu.md.
func documented(t *testing.T, name string, lines []string) {
	t.Helper()
	text := strings.Join(lines, "\n") + "\n"
	t.Log("\n" + text)
	const path = "../../docs/gpu.md"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	front, rest, ok := strings.Cut(string(doc), "<!-- "+name+" -->\n")
	is, back, ok2 := strings.Cut(rest, "<!-- end -->\n")
	if !ok || !ok2 {
		t.Fatalf("%s has no place between <!-- %s --> and <!-- end -->", path, name)
	}
	if is == text {
		return
	}
	if !*update {
		t.Errorf("%s says otherwise (go test ./gpu/kernels -run %s -update): %s", path, t.Name(), is)
		return
	}
	if err := os.WriteFile(path, []byte(front+"<!-- "+name+" -->\n"+text+"<!-- end -->\n"+back), 0o644); err != nil {
		t.Fatal(err)
	}
}
