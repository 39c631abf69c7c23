package dense_test

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"npack/internal/dense"
	"npack/pack/native"
	"npack/pack/stock"
	"npack/ternary"
	"npack/ternary/ternarytest"
	"npack/testdata/storydraft"
)

func weights(t *testing.T, m *ternary.Model, name string) *stock.Weights {
	t.Helper()
	ty, _ := stock.ParseType(name)
	list, err := stock.Plan(m, ty, stock.Levels)
	if err != nil {
		t.Fatal(err)
	}
	return stock.NewWeights(m, list)
}

func draft(t *testing.T) (*ternary.Model, []dense.Trajectory) {
	t.Helper()
	f, err := native.OpenBytes("story-draft.bin", storydraft.Container)
	if err != nil {
		t.Fatal(err)
	}
	list, err := dense.ParseTrajectories(storydraft.Trajectories, &f.Model().Config)
	if err != nil {
		t.Fatal(err)
	}
	return f.Model(), list
}

// The stored margins were made by another program in float64: ours are the same
// but for the embeddings, whose products are rounded to float32.
func TestMargins(t *testing.T) {
	m, list := draft(t)
	list = list[:3]
	texts := make([]dense.Text, len(list))
	for i, p := range list {
		texts[i] = dense.Text{Tokens: append(append([]int32{}, p.Prompt...), p.IDs[:len(p.IDs)-1]...), From: len(p.Prompt) - 1, Next: p.IDs}
	}
	scores, err := dense.Run(t.Context(), weights(t, m, "f32"), texts, nil)
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for i := range list {
		for j, s := range scores[i] {
			worst = max(worst, math.Abs(s.Margin-list[i].Margins[j]))
			if s.Best != list[i].IDs[j] || s.Next != s.Logit || s.Loss() <= 0 {
				t.Fatalf("prompt %d step %d: %+v, want token %d", i, j, s, list[i].IDs[j])
			}
		}
	}
	if worst > 1e-5 {
		t.Errorf("margins differ by %g", worst)
	}
}

// A wrong token is found, and coarse weights make some.
func TestGreedy(t *testing.T) {
	m, list := draft(t)
	list = list[:4]
	w := weights(t, m, "f32")
	last := int64(0)
	r, err := dense.Greedy(t.Context(), w, list, func(done, total int64) {
		if done < last || done > total {
			t.Errorf("%d of %d after %d", done, total, last)
		}
		last = done
	})
	if err != nil || r.Compared != 256 || r.Equal != 256 || r.First != nil || r.LeastMargin <= 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err = dense.Greedy(t.Context(), weights(t, m, "q4_0"), list, nil); err != nil || r.Equal == r.Compared || r.First == nil || r.First.Got == r.First.Want {
		t.Errorf("q4_0: %+v, %v", r, err)
	}
	w.Imitate = true // half attention moves logits, and few tokens
	if r, err = dense.Greedy(t.Context(), w, list, nil); err != nil || r.Equal < 250 {
		t.Errorf("imitated: %+v, %v", r, err)
	}
	changed := list[2]
	changed.IDs = append([]int32{}, changed.IDs...)
	changed.IDs[7]++
	r, err = dense.Greedy(t.Context(), weights(t, m, "f32"), []dense.Trajectory{changed}, nil)
	if err != nil || r.First == nil || r.First.Step != 7 {
		t.Errorf("%+v, %v", r, err)
	}
}

// The perplexity stored with the models. The text is not part of this project.
func TestPerplexity(t *testing.T) {
	const file = "../../../shared/models/story-draft/ppl.json"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Skipf("SKIP: no held-out text: %v", err)
	}
	m, _ := draft(t)
	windows, err := dense.ParseWindows(data, &m.Config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := dense.Perplexity(t.Context(), weights(t, m, "f32"), windows, nil)
	if err != nil || math.Abs(p-41.4267919) > 1e-5 {
		t.Errorf("%.7f, %v", p, err)
	}
}

func TestParseWindows(t *testing.T) {
	c := &ternary.Config{Vocab: 10, MaxPosition: 8}
	for _, x := range []struct{ in, want string }{
		{`{"ids":[1,2,3,4],"windows":[{"start":0,"tokens":2},{"start":2,"tokens":2}]}`, ""},
		{`{"ids":[1,2,3,10],"windows":[{"start":0,"tokens":2}]}`, "ids[3]: token id 10"},
		{`{"ids":[1,2,3],"windows":[{"start":2,"tokens":2}]}`, "windows[0]: 2 tokens from 2"},
		{`{"ids":[1,2,3],"windows":[{"start":9223372036854775807,"tokens":2}]}`, "windows[0]"},
		{`{"ids":[1,2,3],"windows":[{"start":-1,"tokens":2}]}`, "windows[0]"},
		{`{"ids":[1,2,3],"windows":[{"start":0,"tokens":1}]}`, "windows[0]"},
		{`{"ids":[1,2,3]}`, "windows: none"},
		{`{"ids":"x"}`, "cannot unmarshal"},
	} {
		w, err := dense.ParseWindows([]byte(x.in), c)
		if x.want == "" && (err != nil || len(w) != 2 || w[1][0] != 3) || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s: %v, %v", x.in, w, err)
		}
	}
}

func TestRefuse(t *testing.T) {
	m, list := draft(t)
	w := weights(t, m, "f32")
	for _, text := range []dense.Text{{Tokens: []int32{1}}, {Tokens: []int32{4096}, Next: []int32{1}}, {Tokens: []int32{1}, Next: []int32{-1}}, {Tokens: []int32{1}, From: -1, Next: []int32{1, 2}}} {
		if _, err := dense.Run(t.Context(), w, []dense.Text{text}, nil); err == nil {
			t.Errorf("%+v was taken", text)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dense.Greedy(ctx, w, list, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for _, c := range ternarytest.All() {
		if c.Spec.Arch == ternary.BitNet {
			if _, err := dense.Run(t.Context(), bitnet{w, &c.Spec.Config}, nil, nil); err == nil {
				t.Error("BitNet was taken")
			}
		}
	}
}

// bitnet is weights that say they are a BitNet model's.
type bitnet struct {
	*stock.Weights
	c *ternary.Config
}

func (b bitnet) Config() *ternary.Config { return b.c }
