package reference_test

import (
	"context"
	"math"
	"os"
	"runtime"
	"sync"
	"testing"

	"npack/internal/simulation"
	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
	"npack/testdata/story"
	"npack/testdata/storydraft"
)

// exact64 is the textbook forward pass of a Qwen3 model in float64, with no
// rounding of activations or cache: what the stored trajectories were made
// with. It returns the logits [len(ids)-first, Vocab] after each token from
// first on.
func exact64(m *ternary.Model, ids []int32, first int) [][]float64 {
	c := &m.Config
	x := make([][]float64, len(ids))
	emb := m.InputEmbedding()
	for i, id := range ids {
		x[i] = make([]float64, c.Hidden)
		for j, q := range emb.Row(int(id)) {
			x[i][j] = float64(q) * float64(emb.Scale[id])
		}
	}
	for l := range m.Layers {
		w := &m.Layers[l]
		h := mapRows(x, func(x []float64) []float64 { return norm64(x, w.AttnNorm, c.RMSEps) })
		q, k, v := matmul64(&w.Q, h), matmul64(&w.K, h), matmul64(&w.V, h)
		for i := range ids {
			for _, p := range []struct {
				x []float64
				g []float32
			}{{q[i], w.QNorm}, {k[i], w.KNorm}} {
				for d := 0; d < len(p.x); d += c.HeadDim {
					rotate64(norm64to(p.x[d:d+c.HeadDim], p.g, c.RMSEps), i, c)
				}
			}
		}
		a := make([][]float64, len(ids))
		for i := range a {
			a[i] = make([]float64, c.QDim())
			for head := range c.Heads {
				d, kd := head*c.HeadDim, head/(c.Heads/c.KVHeads)*c.HeadDim
				p, sum, top := make([]float64, i+1), 0.0, math.Inf(-1)
				for j := range p {
					for e := range c.HeadDim {
						p[j] += q[i][d+e] * k[j][kd+e]
					}
					p[j] /= math.Sqrt(float64(c.HeadDim))
					top = max(top, p[j])
				}
				for j := range p {
					p[j] = math.Exp(p[j] - top)
					sum += p[j]
				}
				for j := range p {
					for e := range c.HeadDim {
						a[i][d+e] += p[j] / sum * v[j][kd+e]
					}
				}
			}
		}
		add64(x, matmul64(&w.O, a))
		h = mapRows(x, func(x []float64) []float64 { return norm64(x, w.FFNNorm, c.RMSEps) })
		g, up := matmul64(&w.Gate, h), matmul64(&w.Up, h)
		for i := range g {
			for j, z := range g[i] {
				g[i][j] = z / (1 + math.Exp(-z)) * up[i][j]
			}
		}
		add64(x, matmul64(&w.Down, g))
	}
	out := make([][]float64, len(ids)-first)
	each(len(out), func(i int) {
		h := norm64(x[first+i], m.FinalNorm, c.RMSEps)
		out[i] = make([]float64, c.Vocab)
		for r := range out[i] {
			for j, q := range m.Head.Row(r) {
				out[i][r] += float64(q) * h[j]
			}
			out[i][r] *= float64(m.Head.Scale[r])
		}
	})
	return out
}

func mapRows(x [][]float64, f func([]float64) []float64) [][]float64 {
	y := make([][]float64, len(x))
	for i := range x {
		y[i] = f(x[i])
	}
	return y
}

func norm64(x []float64, g []float32, eps float32) []float64 {
	return norm64to(append([]float64(nil), x...), g, eps)
}

func norm64to(x []float64, g []float32, eps float32) []float64 {
	s := 0.0
	for _, v := range x {
		s += v * v
	}
	r := 1 / math.Sqrt(s/float64(len(x))+float64(eps))
	for i := range x {
		x[i] *= r * float64(g[i])
	}
	return x
}

func rotate64(x []float64, pos int, c *ternary.Config) {
	n := c.RotaryDims / 2
	for i := range n {
		s, co := math.Sincos(float64(pos) * math.Pow(float64(c.RopeTheta), -2*float64(i)/float64(c.RotaryDims)))
		x[i], x[i+n] = x[i]*co-x[i+n]*s, x[i+n]*co+x[i]*s
	}
}

func matmul64(w *ternary.Matrix, x [][]float64) [][]float64 {
	y := make([][]float64, len(x))
	for i := range y {
		y[i] = make([]float64, w.Rows)
	}
	each(w.Rows, func(r int) {
		row := make([]float64, w.Cols)
		for c := range row {
			row[c] = float64(w.Weight(r, c))
		}
		for i := range x {
			s := 0.0
			for c, v := range row {
				s += v * x[i][c]
			}
			y[i][r] = s
		}
	})
	return y
}

func add64(x, y [][]float64) {
	for i := range x {
		for j, v := range y[i] {
			x[i][j] += v
		}
	}
}

// each calls f(0..n-1) on all cores.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	threads := runtime.GOMAXPROCS(0)
	for t := range threads {
		wg.Go(func() {
			for i := t; i < n; i += threads {
				f(i)
			}
		})
	}
	wg.Wait()
}

func margin64(l []float64) float64 {
	best, second := math.Inf(-1), math.Inf(-1)
	for _, v := range l {
		if v > best {
			best, second = v, best
		} else if v > second {
			second = v
		}
	}
	return best - second
}

// The reference against float64: how far rounding moves the logits, as a share
// of the largest logit of a position. The margins of the float64 pass are those
// stored with the trajectories, which proves the yardstick. Six prompts, or all
// 48 with NPACK_EXHAUSTIVE=1 (make exhaustive): NUMERICS.md quotes those.
func TestAgainstFloat64(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP in short mode: the float64 pass is slow")
	}
	options := []backend.Options{
		{Activations: backend.Exact, KV: backend.KVF32}, {Activations: backend.Exact, KV: backend.KVF16}, {Activations: backend.Exact, KV: backend.KVInt8},
		{Activations: backend.Int16, KV: backend.KVF16}, {Activations: backend.Int8, KV: backend.KVF16},
	}
	// A little above what this run gave when it was written: a change of
	// arithmetic shows even where no token changes.
	limit := []float64{1e-6, 7e-4, 1.2e-2, 7e-4, 7e-2}
	worst, forks := make([]float64, len(options)), make([]int, len(options))
	positions, yardstick := 0, 0.0
	for _, s := range []struct{ model, paths []byte }{{story.Container, story.Trajectories}, {storydraft.Container, storydraft.Trajectories}} {
		m := simulation.Open(t, s.model)
		trs := simulation.Trajectories(t, s.paths)
		if os.Getenv("NPACK_EXHAUSTIVE") == "" {
			trs = trs[:3]
		}
		var exact [][][]float64 // [prompt][position][Vocab]
		for i, tr := range trs {
			ids := append(append([]int32(nil), tr.PromptIDs...), tr.IDs[:len(tr.IDs)-1]...)
			exact = append(exact, exact64(m, ids, len(tr.PromptIDs)-1))
			for j := range tr.IDs {
				yardstick = max(yardstick, math.Abs(margin64(exact[i][j])-tr.Margins[j]))
				positions++
			}
		}
		for k, o := range options {
			in, err := reference.Backend{}.Load(context.Background(), m, o)
			if err != nil {
				t.Fatal(err)
			}
			for i, tr := range trs {
				logits := simulation.Forced(t, in, tr)
				for j := range tr.IDs {
					got, want := logits[j*m.Vocab:(j+1)*m.Vocab], exact[i][j]
					diff, size := 0.0, 0.0
					for r := range got {
						diff, size = max(diff, math.Abs(float64(got[r])-want[r])), max(size, math.Abs(want[r]))
					}
					worst[k] = max(worst[k], diff/size)
					if simulation.Argmax(got) != tr.IDs[j] {
						forks[k]++
					}
				}
			}
		}
	}
	t.Logf("float64 margins differ from the stored ones by at most %.2g", yardstick)
	if yardstick > 1e-9 {
		t.Errorf("the float64 pass is not the one that made the trajectories: margins differ by %g", yardstick)
	}
	for k, o := range options {
		t.Logf("activations %-5s  KV %-4s  %d positions: largest relative logit error %.2e, other greedy token at %d", o.Activations, o.KV, positions, worst[k], forks[k])
		if worst[k] > limit[k] {
			t.Errorf("activations %s, KV %s: error %g is above %g", o.Activations, o.KV, worst[k], limit[k])
		}
	}
	if forks[0]+forks[1] != 0 {
		t.Errorf("exact activations choose another token than float64")
	}
}
