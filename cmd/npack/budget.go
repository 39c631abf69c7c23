package main

import "npack/ternary"

// size is one line of a table of bytes.
type size struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// budget says where the bytes of a file go, in two ways that both add up to
// the whole file.
type budget struct {
	ByPart []size `json:"bytes_by_part"` // tensors of the same name in all layers together
	ByKind []size `json:"bytes_by_kind"` // planes, scales, …
}

// The kinds of bytes, in the order in which they are listed.
const (
	kindPlanes  = "ternary planes"
	kindScales  = "row scales"
	kindSums    = "row sums"
	kindBiases  = "biases"
	kindNorms   = "norms"
	kindTables  = "int8 tables"
	kindHeaders = "headers"
)

// newBudget adds up m, which fileBytes hold. What no tensor accounts for is
// the file's and the records' headers.
func newBudget(m *ternary.Model, fileBytes int64) budget {
	parts, kinds := map[string]int64{}, map[string]int64{}
	left := fileBytes
	add := func(part, kind string, n int) {
		parts[part] += int64(n)
		kinds[kind] += int64(n)
		left -= int64(n)
	}
	order := []string{}
	if !m.Tied {
		order = append(order, "input embedding")
	}
	order = append(order, ternary.Projections[:]...)
	order = append(order, "norms", "output head")
	if m.Tied {
		order[len(order)-1] = "tied embedding"
	}

	projection := 0
	for t := range m.Tensors() {
		switch {
		case t.Ternary != nil:
			w, name := t.Ternary, ternary.Projections[projection]
			projection = (projection + 1) % ternary.NumProjections
			add(name, kindPlanes, 3*w.Rows*w.Stride)
			add(name, kindScales, 8*w.Rows)
			add(name, kindSums, 8*w.Rows)
			add(name, kindBiases, 4*len(w.Bias))
		case t.Int8 != nil:
			name := order[len(order)-1]
			if t.Int8 == m.Embed {
				name = order[0]
			}
			add(name, kindTables, t.Int8.Rows*t.Int8.Stride)
			add(name, kindScales, 4*t.Int8.Rows)
			add(name, kindSums, 4*t.Int8.Rows)
		default:
			add("norms", kindNorms, 4*len(t.Vector))
		}
	}
	parts[kindHeaders], kinds[kindHeaders] = left, left

	return budget{
		ByPart: list(append(order, kindHeaders), parts),
		ByKind: list([]string{kindPlanes, kindTables, kindScales, kindSums, kindBiases, kindNorms, kindHeaders}, kinds),
	}
}

func list(order []string, bytes map[string]int64) (l []size) {
	for _, name := range order {
		l = append(l, size{name, bytes[name]})
	}
	return l
}

// weights counts the numbers of a model.
type weights struct {
	Ternary int64 `json:"ternary"`
	Int8    int64 `json:"int8"`
	Float   int64 `json:"float"` // norms and biases; scales belong to their weights
	Total   int64 `json:"total"`

	ternaryBytes int64 // planes, scales, sums and biases
}

func countWeights(m *ternary.Model) (n weights) {
	for t := range m.Tensors() {
		switch {
		case t.Ternary != nil:
			w := t.Ternary
			n.Ternary += int64(w.Rows) * int64(w.Cols)
			n.Float += int64(len(w.Bias))
			n.ternaryBytes += int64(w.Rows)*(3*int64(w.Stride)+16) + 4*int64(len(w.Bias))
		case t.Int8 != nil:
			n.Int8 += int64(t.Int8.Rows) * int64(t.Int8.Cols)
		default:
			n.Float += int64(len(t.Vector))
		}
	}
	n.Total = n.Ternary + n.Int8 + n.Float
	return n
}
