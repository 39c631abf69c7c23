package dense

import (
	"math"
	"runtime"
	"sync"

	"npack/runtime/reference"
)

// attention norms (where the model does) and rotates q [N][QDim] and k [N][KVDim]
// in place and returns the mixed values [N][QDim]; no text sees another.
func (p *pass) attention(texts []Text, q, k, v [][]float64, qNorm, kNorm []float32) [][]float64 {
	c := p.c
	out := matrix(p.tokens, c.QDim())
	half, attend := p.w.Half(), attend
	if half {
		attend = attendHalf
	}
	at := 0
	for _, t := range texts {
		n := len(t.Tokens)
		q, k, v, out := q[at:at+n], k[at:at+n], v[at:at+n], out[at:at+n]
		at += n
		parallel(n, func(from, to int) {
			for i := from; i < to; i++ {
				p.turn(q[i], qNorm, i)
				p.turn(k[i], kNorm, i)
				if half {
					toHalf(q[i])
					toHalf(k[i])
					toHalf(v[i])
				}
			}
		})
		parallel(n*c.Heads, func(from, to int) {
			for i := from; i < to; i++ {
				t, head := i/c.Heads, i%c.Heads
				d, kd := head*c.HeadDim, head/(c.Heads/c.KVHeads)*c.HeadDim
				attend(out[t][d:d+c.HeadDim], q[t][d:d+c.HeadDim], k[:t+1], v[:t+1], kd)
			}
		})
	}
	return out
}

// turn norms and rotates each head of x at position pos: element i pairs with
// element i + RotaryDims/2.
func (p *pass) turn(x []float64, g []float32, pos int) {
	n := p.c.RotaryDims / 2
	for ; len(x) > 0; x = x[p.c.HeadDim:] {
		if g != nil {
			norm(x[:p.c.HeadDim], g, p.c.RMSEps)
		}
		for i := range n {
			angle := float64(pos) * math.Pow(float64(p.c.RopeTheta), -2*float64(i)/float64(p.c.RotaryDims))
			sin, cos := math.Sincos(angle)
			x[i], x[i+n] = x[i]*cos-x[i+n]*sin, x[i+n]*cos+x[i]*sin
		}
	}
}

// attend computes one head of one position: out and q [HeadDim], keys and values
// [positions][KVDim], of which the head's begin at kd.
func attend(out, q []float64, k, v [][]float64, kd int) {
	scale, top := 1/math.Sqrt(float64(len(q))), math.Inf(-1)
	s := make([]float64, len(k))
	for j := range k {
		for e, f := range k[j][kd : kd+len(q)] {
			s[j] += q[e] * f
		}
		s[j] *= scale
		top = max(top, s[j])
	}
	sum := 0.0
	for j := range s {
		s[j] = math.Exp(s[j] - top)
		sum += s[j]
	}
	for j := range v {
		w := s[j] / sum
		for e, f := range v[j][kd : kd+len(q)] {
			out[e] += w * f
		}
	}
}

// attendHalf is attend as llama.cpp's CPU code has it by default: one walk over
// the positions, the largest score so far as the exponent's base, and a sum of
// values that is rounded to binary16 at every step.
func attendHalf(out, q []float64, k, v [][]float64, kd int) {
	scale, top, sum := 1/math.Sqrt(float64(len(q))), math.Inf(-1), 0.0
	for j := range k {
		s := 0.0
		for e, f := range k[j][kd : kd+len(q)] {
			s += q[e] * f
		}
		s *= scale
		w := 1.0
		if s > top {
			shrink := math.Exp(top - s)
			sum *= shrink
			for e := range out {
				out[e] = half(out[e] * shrink)
			}
			top = s
		} else {
			w = math.Exp(s - top)
		}
		sum += w
		for e, f := range v[j][kd : kd+len(q)] {
			out[e] = half(out[e] + w*f)
		}
	}
	for e := range out {
		out[e] /= sum
	}
}

func toHalf(x []float64) {
	for i, v := range x {
		x[i] = half(v)
	}
}

// half rounds to binary16.
func half(x float64) float64 {
	return float64(reference.F16toF32(reference.F32toF16(float32(x))))
}

// head returns the scores of the positions that are wanted. Logits are looked at
// in blocks of the vocabulary: they are never all there.
func (p *pass) head(texts []Text, x [][]float64) ([][]Score, error) {
	scores := make([][]Score, len(texts))
	var wanted [][]float64 // the wanted positions of all texts
	var next []int32
	at := 0
	for i, t := range texts {
		scores[i] = make([]Score, len(t.Next))
		wanted = append(wanted, x[at+t.From:at+len(t.Tokens)]...)
		next = append(next, t.Next...)
		at += len(t.Tokens)
	}
	name := "output.weight"
	if p.c.Tied {
		name = "token_embd.weight"
	}
	h := p.rounded(norms(wanted, p.w.Vector("output_norm.weight"), p.c.RMSEps), name)
	sums := make([]summary, len(h))
	for i := range sums {
		sums[i] = summary{best: -1, top: math.Inf(-1), second: math.Inf(-1)}
	}
	const block = 1024
	logits := matrix(len(h), block)
	for r0 := 0; r0 < p.c.Vocab; r0 += block {
		r1 := min(p.c.Vocab, r0+block)
		if err := p.rows(h, name, r0, r1, func(r, i int, v float64) { logits[i][r-r0] = v }); err != nil {
			return nil, err
		}
		parallel(len(h), func(from, to int) {
			for i := from; i < to; i++ {
				for j, v := range logits[i][:r1-r0] {
					sums[i].add(int32(r0+j), v)
				}
				if id := int(next[i]); id >= r0 && id < r1 {
					sums[i].next = logits[i][id-r0]
				}
			}
		})
	}
	i := 0
	for t := range scores {
		for j := range scores[t] {
			s := &sums[i]
			scores[t][j] = Score{Best: s.best, Margin: s.top - s.second, Logit: s.top, Next: s.next, LogSum: s.top + math.Log(s.sum)}
			i++
		}
	}
	return scores, nil
}

// summary is what is known of a position's logits so far.
type summary struct {
	best        int32
	top, second float64
	sum         float64 // of exp(logit - top)
	next        float64
}

func (s *summary) add(id int32, v float64) {
	switch {
	case v > s.top || v == s.top && id < s.best:
		s.sum = s.sum*math.Exp(s.top-v) + 1
		s.best, s.top, s.second = id, v, s.top
	default:
		s.sum += math.Exp(v - s.top)
		s.second = max(s.second, v)
	}
}

func norms(x [][]float64, g []float32, eps float32) [][]float64 {
	y := make([][]float64, len(x))
	for i := range x {
		y[i] = append([]float64(nil), x[i]...)
		norm(y[i], g, eps)
	}
	return y
}

// norm is the RMS norm of x with weights g.
func norm(x []float64, g []float32, eps float32) {
	s := 0.0
	for _, v := range x {
		s += v * v
	}
	r := 1 / math.Sqrt(s/float64(len(x))+float64(eps))
	for i := range x {
		x[i] *= r * float64(g[i])
	}
}

func add(x, y [][]float64) {
	for i := range x {
		for j, v := range y[i] {
			x[i][j] += v
		}
	}
}

func matrix(rows, cols int) [][]float64 {
	all := make([]float64, rows*cols)
	m := make([][]float64, rows)
	for i := range m {
		m[i] = all[i*cols : (i+1)*cols : (i+1)*cols]
	}
	return m
}

// parallel calls f on parts of 0..n on all cores.
func parallel(n int, f func(from, to int)) {
	threads := min(n, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() { f(n*i/threads, n*(i+1)/threads) })
	}
	wg.Wait()
}
