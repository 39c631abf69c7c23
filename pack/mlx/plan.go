package mlx

import (
	"context"
	"fmt"
	"math"
	"sync"

	"npack/pack"
	"npack/pack/hf"
	"npack/pack/safetensors"
	"npack/ternary"
)

// Options say what is written.
type Options struct {
	Profile  Profile // "" chooses: affine if that is exact, else planes
	Bits     int     // of profile nearest: 6, or 8, which 0 means
	MaxShard int64   // bytes of data in a file at most; 0 means one file
	Side     string  // the directory that the tokenizer's files are copied from
	Source   string  // the name of the model file that it is made of
	Version  string  // of this program
	// Progress, if set, is told how many bytes of how many are written.
	Progress func(done, total int64)
}

// Plan is a pack that can be written.
type Plan struct {
	Profile Profile
	Exact   bool // the pack holds every weight of the container
	// LinearError is the largest error of a matrix's weight as MLX computes it,
	// relative to it; TableError that of an embedding's in MLX's own products, in
	// steps of its row's scale.
	LinearError, TableError float64
	Bytes                   int64 // of the files of weights

	m       *ternary.Model
	o       Options
	group   int // of profile planes; else of the widest layer
	modules []module
	files   []safetensors.Header
}

// module is a tensor of the model and how it is stored.
type module struct {
	t     ternary.Tensor
	name  string // mlx-lm's
	bits  int    // 0: plain floats
	group int
	err   float64 // as in Plan
}

// planes reports whether the module is a matrix in two planes.
func (p *Plan) planes(k *module) bool { return p.Profile == Planes && k.t.Ternary != nil }

// NewPlan looks at all weights and decides how to store them. The error is a
// [*ternary.Error] if one breaks a rule of the container, else a [*pack.Error].
func NewPlan(ctx context.Context, m *ternary.Model, o Options) (*Plan, error) {
	if err := check(m); err != nil {
		return nil, err
	}
	p := &Plan{Profile: o.Profile, m: m, o: o}
	nearest := 0
	if o.Profile == Nearest {
		if nearest = o.Bits; nearest == 0 {
			nearest = 8
		}
		if nearest != 6 && nearest != 8 {
			return nil, &pack.Error{Kind: pack.ErrUnsupported, Offset: -1, Found: fmt.Sprintf("%d bits", o.Bits), Expected: "8 or 6: fewer are too far off"}
		}
	}
	s, err := survey(ctx, m, nearest)
	if err != nil {
		return nil, err
	}
	bits := s.exactBits(m)
	if p.Profile == "" {
		p.Profile = Planes
		if bits != nil {
			p.Profile = Affine
		}
	}
	if p.Profile == Affine && bits == nil {
		return nil, &pack.Error{Kind: pack.ErrUnsupported, Place: tensorPlace(s.first), Offset: -1, Found: "rows with two magnitudes that no small integers express",
			Expected: "magnitudes for which profile affine is exact", Hint: "profile planes is exact for all models; profile nearest rounds"}
	}
	var cols []int
	for t := range m.Tensors() {
		k := module{t: t, name: hf.Module(t.Name)}
		if t.Vector == nil && p.Profile != Dense {
			k.bits, k.group = 8, largestGroup(t.Shape().Cols)
			cols = append(cols, t.Shape().Cols)
		}
		if t.Ternary != nil {
			switch p.Profile {
			case Affine:
				k.bits = bits[t.Name]
			case Planes:
				k.bits = 2
			case Nearest:
				k.bits, k.err = nearest, s.linears[t.Name]
			}
			p.LinearError = max(p.LinearError, k.err)
		} else if t.Int8 != nil && p.Profile != Dense {
			k.err = s.tables[t.Name]
			p.TableError = max(p.TableError, k.err)
		}
		p.modules = append(p.modules, k)
	}
	p.group = largestGroup(cols...)
	for i := range p.modules {
		if k := &p.modules[i]; p.Profile == Planes && k.bits > 0 {
			k.group = p.group
		}
	}
	p.Exact = p.LinearError == 0
	if err := p.layOut(); err != nil {
		return nil, err
	}
	return p, nil
}

// layOut decides which tensors there are (§3) and in which files.
func (p *Plan) layOut() error {
	h := safetensors.Header{Metadata: []safetensors.KV{{Key: "format", Value: "mlx"}}}
	for i := range p.modules {
		h.Tensors = append(h.Tensors, p.tensors(&p.modules[i])...)
	}
	var err error
	if p.files, err = h.Split(p.o.MaxShard); err != nil {
		return err
	}
	for i := range p.files {
		p.Bytes += int64(len(p.files[i].Encode())) + p.files[i].DataSize()
	}
	return nil
}

// tensors returns the tensors of a module, in their order in the file.
func (p *Plan) tensors(k *module) []safetensors.Tensor {
	if k.t.Vector != nil {
		return []safetensors.Tensor{{Name: k.name + ".weight", DType: safetensors.F32, Shape: []int64{int64(len(k.t.Vector))}}}
	}
	shape := k.t.Shape()
	rows, cols := int64(shape.Rows), int64(shape.Cols)
	if k.bits == 0 {
		return []safetensors.Tensor{{Name: k.name + ".weight", DType: safetensors.F32, Shape: []int64{rows, cols}}}
	}
	if p.planes(k) {
		cols *= 2
	}
	groups := []int64{rows, cols / int64(k.group)}
	return []safetensors.Tensor{
		{Name: k.name + ".weight", DType: safetensors.U32, Shape: []int64{rows, cols * int64(k.bits) / 32}},
		{Name: k.name + ".scales", DType: safetensors.F32, Shape: groups},
		{Name: k.name + ".biases", DType: safetensors.F32, Shape: groups},
	}
}

// surveyed is what the profiles want to know of all rows, by tensor.
type surveyed struct {
	mu      sync.Mutex
	nearest int                // bits of profile nearest, or 0
	inexact map[string][9]bool // matrices: whether some row is not exact with so many bits
	linears map[string]float64 // largest error with that many bits
	tables  map[string]float64
	first   string // a matrix that no width is exact for
}

// survey checks all weights and looks at the magnitudes of all rows.
func survey(ctx context.Context, m *ternary.Model, nearest int) (*surveyed, error) {
	s := &surveyed{nearest: nearest, inexact: map[string][9]bool{}, linears: map[string]float64{}, tables: map[string]float64{}}
	return s, m.Walk(ctx, ternary.WalkOptions{}, 1, func(t, part ternary.Tensor, r0 int) error {
		err := s.part(t, part, r0)
		m.ReleaseTensor(part)
		return err
	})
}

// part looks at some rows of t.
func (s *surveyed) part(t, part ternary.Tensor, r0 int) error {
	if v := part.Vector; v != nil {
		for i, f := range v {
			if !finite(f) {
				return &ternary.Error{Tensor: t.Name, Part: ternary.PartNorm, Row: i, Col: -1, Found: fmt.Sprintf("value %v", f), Expected: "a finite number"}
			}
		}
		return nil
	}
	if q := part.Int8; q != nil {
		worst := 0.0
		for r, f := range q.Scale {
			if err := scaleFits(t.Name, ternary.PartScale, r0+r, f); err != nil {
				return err
			}
			worst = max(worst, tableError(f))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tables[t.Name] = max(s.tables[t.Name], worst)
		return nil
	}
	w := part.Ternary
	var inexact [9]bool
	worst := 0.0
	for r := range w.Rows {
		if _, _, err := w.RowSums(t.Name, r0, r); err != nil {
			return err
		}
		lo, hi := w.SLo[r], w.SHi[r]
		if err := scaleFits(t.Name, ternary.PartSLo, r0+r, lo); err != nil {
			return err
		}
		if err := scaleFits(t.Name, ternary.PartSHi, r0+r, hi); err != nil {
			return err
		}
		usesLo, usesHi := uses(w, r)
		for _, bits := range widths {
			if !inexact[bits] {
				_, ok := newGrid(lo, hi, usesLo, usesHi, bits)
				inexact[bits] = !ok
			}
		}
		if s.nearest > 0 {
			g := nearestGrid(lo, hi, usesLo, usesHi, s.nearest)
			worst = max(worst, g.err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.inexact[t.Name]
	for i, x := range inexact {
		all[i] = all[i] || x
	}
	s.inexact[t.Name] = all
	s.linears[t.Name] = max(s.linears[t.Name], worst)
	return nil
}

// exactBits returns the smallest exact width of every matrix, or nil if one has
// none.
func (s *surveyed) exactBits(m *ternary.Model) map[string]int {
	bits := map[string]int{}
	for t := range m.Tensors() {
		if t.Ternary == nil {
			continue
		}
		inexact := s.inexact[t.Name]
		for _, b := range widths {
			if !inexact[b] {
				bits[t.Name] = b
				break
			}
		}
		if bits[t.Name] == 0 {
			s.first = t.Name
			return nil
		}
	}
	return bits
}

// uses reports which magnitudes row r uses.
func uses(w *ternary.Matrix, r int) (lo, hi bool) {
	for i := r * w.Stride; i < (r+1)*w.Stride; i++ {
		used := w.BP[i] | w.BN[i]
		lo = lo || used&^w.BR[i] != 0
		hi = hi || used&w.BR[i] != 0
	}
	return lo, hi
}

func finite(f float32) bool { return math.Float32bits(f)&0x7f800000 != 0x7f800000 }

// scaleFits refuses a scale that is not finite or whose products with codes are
// not.
func scaleFits(name, part string, row int, f float32) error {
	if abs(f) <= math.MaxFloat32/256 { // false for NaN
		return nil
	}
	return &ternary.Error{Tensor: name, Part: part, Row: row, Col: -1, Found: fmt.Sprintf("%s is %v", part, f), Expected: "a finite number whose product with 256 is finite"}
}
