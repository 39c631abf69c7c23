// Package dense is the forward pass as textbooks have it: matrices of plain
// numbers, float64 throughout, no cache. It says what a file's weights mean,
// apart from the arithmetic of any program that runs them, and is made for
// judging files, not for making text: a whole set of texts goes through the model
// together, layer by layer, and each row of weights is decoded once for all.
package dense

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"

	"npack/ternary"
)

// Weights is a model as numbers. All methods may be called from several
// goroutines.
type Weights interface {
	Config() *ternary.Config
	// Vector returns the norm or bias of that name ("blk.0.attn_norm.weight"),
	// or nil if the model has none.
	Vector(name string) []float32
	// Rows writes rows r0 to r1 of the matrix of that name into dst.
	Rows(dst []float32, name string, r0, r1 int) error
	// Round changes the input of the matrix of that name as the program does that
	// is imitated. It may do nothing.
	Round(name string, x []float64)
	// Half says whether attention takes queries, keys and values as binary16 and
	// sums values up in it.
	Half() bool
}

// Text is a sequence of tokens whose logits are wanted after each position from
// From on.
type Text struct {
	Tokens []int32
	From   int
	// Next has a token for each of those positions, whose logit is told.
	Next []int32
}

// Score is what is told of the logits at one position.
type Score struct {
	Best   int32   // the token with the largest logit, the lowest of equals
	Margin float64 // largest less second-largest logit
	Logit  float64 // of the best
	Next   float64 // logit of the text's next token
	LogSum float64 // log of the sum of all exp(logit)
}

// Loss is the negative log-likelihood of the text's next token, in nats.
func (s *Score) Loss() float64 { return s.LogSum - s.Next }

// Run returns the scores of each text. progress, if not nil, is told how much is
// done.
func Run(ctx context.Context, w Weights, texts []Text, progress func(done, total int64)) ([][]Score, error) {
	c := w.Config()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Arch == ternary.BitNet {
		return nil, fmt.Errorf("dense: arch %d (BitNet) is defined by its 8-bit activations: use the reference backend", c.Arch)
	}
	p := &pass{ctx: ctx, w: w, c: c, progress: progress}
	for i, t := range texts {
		if t.From < 0 || t.From+len(t.Next) != len(t.Tokens) {
			return nil, fmt.Errorf("dense: text %d: %d tokens wanted after position %d of %d", i, len(t.Next), t.From, len(t.Tokens))
		}
		for _, id := range append(t.Next[:len(t.Next):len(t.Next)], t.Tokens...) {
			if id < 0 || int(id) >= c.Vocab {
				return nil, fmt.Errorf("dense: text %d: token id %d is outside the vocabulary of %d", i, id, c.Vocab)
			}
		}
		p.tokens += len(t.Tokens)
		p.total += int64(len(t.Next)) * int64(c.Vocab) * int64(c.Hidden)
	}
	for _, s := range c.LinearShapes() {
		p.total += int64(c.Layers) * int64(p.tokens) * int64(s.Rows) * int64(s.Cols)
	}
	return p.run(texts)
}

// pass is one run. Positions of all texts are stacked: N of them.
type pass struct {
	ctx         context.Context
	w           Weights
	c           *ternary.Config
	tokens      int // N
	done, total int64
	progress    func(done, total int64)
}

func (p *pass) run(texts []Text) ([][]Score, error) {
	c := p.c
	x, err := p.embed(texts) // [N][Hidden]
	if err != nil {
		return nil, err
	}
	for l := range c.Layers {
		name := func(part string) string { return ternary.LayerName(l, part) + ".weight" }
		h := norms(x, p.w.Vector(name("attn_norm")), c.RMSEps)
		q, err := p.linear(h, name("attn_q"), c.QDim())
		if err != nil {
			return nil, err
		}
		k, err := p.linear(h, name("attn_k"), c.KVDim())
		if err != nil {
			return nil, err
		}
		v, err := p.linear(h, name("attn_v"), c.KVDim())
		if err != nil {
			return nil, err
		}
		a := p.attention(texts, q, k, v, p.w.Vector(name("attn_q_norm")), p.w.Vector(name("attn_k_norm")))
		o, err := p.linear(a, name("attn_output"), c.Hidden)
		if err != nil {
			return nil, err
		}
		add(x, o)
		h = norms(x, p.w.Vector(name("ffn_norm")), c.RMSEps)
		g, err := p.linear(h, name("ffn_gate"), c.Intermediate)
		if err != nil {
			return nil, err
		}
		up, err := p.linear(h, name("ffn_up"), c.Intermediate)
		if err != nil {
			return nil, err
		}
		for i := range g {
			for j, z := range g[i] {
				g[i][j] = z / (1 + math.Exp(-z)) * up[i][j] // SiLU
			}
		}
		d, err := p.linear(g, name("ffn_down"), c.Hidden)
		if err != nil {
			return nil, err
		}
		add(x, d)
	}
	return p.head(texts, x)
}

// embed returns the embeddings of all tokens.
func (p *pass) embed(texts []Text) ([][]float64, error) {
	x := matrix(p.tokens, p.c.Hidden)
	row := make([]float32, p.c.Hidden)
	i := 0
	for _, t := range texts {
		for _, id := range t.Tokens {
			if err := p.w.Rows(row, "token_embd.weight", int(id), int(id)+1); err != nil {
				return nil, err
			}
			for j, f := range row {
				x[i][j] = float64(f)
			}
			i++
		}
	}
	return x, nil
}

// group is how many rows of weights meet an input together.
const group = 4

// linear returns W*x + bias [N][rows] for x [N][cols].
func (p *pass) linear(x [][]float64, name string, rows int) ([][]float64, error) {
	x = p.rounded(x, name)
	y := matrix(len(x), rows)
	bias := p.w.Vector(name[:len(name)-len("weight")] + "bias")
	err := p.rows(x, name, 0, rows, func(r int, i int, v float64) {
		if bias != nil {
			v += float64(bias[r])
		}
		y[i][r] = v
	})
	return y, err
}

// rounded returns x as the matrix of that name gets it.
func (p *pass) rounded(x [][]float64, name string) [][]float64 {
	y := make([][]float64, len(x))
	parallel(len(x), func(from, to int) {
		for i := from; i < to; i++ {
			y[i] = append([]float64(nil), x[i]...)
			p.w.Round(name, y[i])
		}
	})
	return y
}

// rows calls use, from several goroutines, with the product of each of the rows
// from..to of a matrix and each x.
func (p *pass) rows(x [][]float64, name string, from, to int, use func(r, i int, v float64)) error {
	if len(x) == 0 {
		return nil
	}
	cols := len(x[0])
	var mu sync.Mutex
	var failed error
	next := from
	parallel(runtime.GOMAXPROCS(0), func(int, int) {
		const step = 4 * group
		raw := make([]float32, step*cols)
		var w [group][]float64
		for i := range w {
			w[i] = make([]float64, cols)
		}
		for {
			mu.Lock()
			r0 := next
			next += step
			if failed == nil {
				failed = p.ctx.Err()
			}
			stop := failed != nil || r0 >= to
			mu.Unlock()
			if stop {
				return
			}
			r1 := min(to, r0+step)
			if err := p.w.Rows(raw[:(r1-r0)*cols], name, r0, r1); err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
				return
			}
			for r := r0; r < r1; r += group {
				for g := range w {
					// The last group may be short: its rest is computed for nothing.
					for j, f := range raw[min(r+g, r1-1)*cols-r0*cols:][:cols] {
						w[g][j] = float64(f)
					}
				}
				for i := 0; i < len(x); i += 2 {
					k := min(i+1, len(x)-1) // an odd last one is computed twice
					a, b := dots(&w, x[i], x[k])
					for g := range min(group, r1-r) {
						use(r+g, i, a[g])
						if k > i {
							use(r+g, k, b[g])
						}
					}
				}
			}
			mu.Lock()
			if p.done += int64(r1-r0) * int64(cols) * int64(len(x)); p.progress != nil {
				p.progress(p.done, p.total)
			}
			mu.Unlock()
		}
	})
	return failed
}

// dots returns the products of the rows with x and with y. Eight sums at a time
// load each number half as often.
func dots(w *[group][]float64, x, y []float64) (s, t [group]float64) {
	y = y[:len(x)]
	a, b, c, d := w[0][:len(x)], w[1][:len(x)], w[2][:len(x)], w[3][:len(x)]
	var s0, s1, s2, s3, t0, t1, t2, t3 float64
	for j, u := range x {
		v := y[j]
		s0 += u * a[j]
		t0 += v * a[j]
		s1 += u * b[j]
		t1 += v * b[j]
		s2 += u * c[j]
		t2 += v * c[j]
		s3 += u * d[j]
		t3 += v * d[j]
	}
	return [group]float64{s0, s1, s2, s3}, [group]float64{t0, t1, t2, t3}
}
