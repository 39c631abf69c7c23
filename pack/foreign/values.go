package foreign

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"npack/pack"
	"npack/ternary"
)

// source fills rows of a matrix or table with what a tensor of the file says.
// Rows are those of m, which start at row r0 of the tensor.
type source interface {
	matrix(m *ternary.Matrix, r0 int, k known) error
	table(m *ternary.Int8Matrix, r0 int, k known) error
}

// known is what the file beside an exported container says of rows (package
// rows): their scales and sums are then set already.
type known struct {
	scales  bool
	br      []byte // the plane, if it is an unusual one
	padding []byte // the values behind a table's columns, if they are not 0
}

// origin is a tensor of the file.
type origin struct {
	name  string // in the file
	file  string
	at    int64  // where its data starts in the file, in bytes
	form  string // of its values: "BF16", "TQ2_0 (35)"
	group int    // how many values share a scale; 0 if each stands for itself

	rowBytes int // of the file, where rows follow each other; else 0
}

// wrong says what is wrong with a row, or with the whole tensor if it is below
// 0.
func (o *origin) wrong(kind error, row int, found, expected, hint string) *pack.Error {
	e := &pack.Error{Kind: kind, File: o.file, Place: fmt.Sprintf("tensor %q", o.name), Offset: o.at, Found: found, Expected: expected, Hint: hint}
	if row >= 0 {
		e.Place += fmt.Sprintf(": row %d", row)
		e.Offset += int64(row) * int64(o.rowBytes)
	}
	return e
}

// values is a source whose rows are float32 numbers once they are decoded.
type values struct {
	origin
	rows, cols int
	// load returns the bytes of rows r0 to r1, views of the file or in buf,
	// which holds as many.
	load   func(buf []byte, r0, r1 int) ([]byte, error)
	decode func(dst []float32, src []byte) // a row
	narrow rounding                        // of the type that the values are stored as
	order  func(r int) int                 // the file's row for row r, where it is another one; r without it
	report *tableReport                    // of tables
}

// pieceBytes is about how much of the file is read at a time.
const pieceBytes = 256 << 10

// Buffers of rows that are decoded and of bytes that are read.
var (
	floatBufs = sync.Pool{New: func() any { return new([]float32) }}
	byteBufs  = sync.Pool{New: func() any { return new([]byte) }}
)

// each decodes rows r0 to r1 on all cores and calls do for them with their
// number. It returns the first row's error.
func (x *values) each(r0, r1 int, do func(r int, v []float32) error) error {
	return x.eachRow(r0, r1, func(r int, b []byte) error {
		v := floatBufs.Get().(*[]float32)
		defer floatBufs.Put(v)
		*v = slices.Grow((*v)[:0], x.cols)[:x.cols]
		x.decode(*v, b)
		return do(r, *v)
	})
}

// eachRow is each for the bytes of rows.
func (x *values) eachRow(r0, r1 int, do func(r int, b []byte) error) error {
	step := max(1, pieceBytes/max(1, x.rowBytes))
	if x.order != nil {
		step = 1
	}
	return parallel(r1-r0, step, func(from, to int) error {
		first, last := r0+from, r0+to
		if x.order != nil {
			first = x.order(first)
			last = first + 1
		}
		buf := byteBufs.Get().(*[]byte)
		defer byteBufs.Put(buf)
		*buf = slices.Grow((*buf)[:0], (to-from)*x.rowBytes)
		b, err := x.load((*buf)[:cap(*buf)], first, last)
		if err != nil {
			return err
		}
		for i := range to - from {
			if err := do(r0+from+i, b[i*x.rowBytes:(i+1)*x.rowBytes]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (x *values) matrix(m *ternary.Matrix, r0 int, k known) error {
	return x.each(r0, r0+m.Rows, func(r int, v []float32) error {
		var br []byte
		if k.br != nil {
			br = planeRow(k.br, m, r-r0)
		}
		if err := putRow(m, r-r0, v, k.scales, br); err != nil {
			return x.misfit(r, err)
		}
		return nil
	})
}

// misfit words why a row does not fit, with what a container that keeps it would
// need.
func (x *values) misfit(r int, e *misfit) error {
	if e.distinct == 0 {
		return x.wrong(pack.ErrCorrupt, r, e.found, e.expected, hintDamaged)
	}
	if x.group == 0 || x.group >= x.cols {
		return x.wrong(pack.ErrUnsupported, r, fmt.Sprintf("%s in %d values of type %s", e.found, x.cols, x.form), e.expected,
			"these weights are not five-valued, and nothing is rounded: only a container with a number for each weight could hold them")
	}
	groups := (x.cols + x.group - 1) / x.group
	return x.wrong(pack.ErrUnsupported, r, fmt.Sprintf("%s in %d groups of %d values (type %s)", e.found, groups, x.group, x.form), e.expected+", whose groups share them",
		fmt.Sprintf("scales per group do not fit into two magnitudes a row, and nothing is rounded: a lossless container would need one scale for each group of %d beside the planes, %d bytes more for this tensor as f16",
			x.group, 2*int64(groups)*int64(x.rows)))
}

func (x *values) table(m *ternary.Int8Matrix, r0 int, k known) error {
	return x.each(r0, r0+m.Rows, func(r int, v []float32) error {
		i := r - r0
		row := m.Q[i*m.Stride : (i+1)*m.Stride]
		q, padding := row[:m.Cols], row[m.Cols:]
		clear(padding)
		for j := range padding[:min(len(padding), len(k.padding))] {
			padding[j] = int8(k.padding[i*len(padding)+j])
		}
		var given float32
		if k.scales {
			given = m.Scale[i]
		}
		s, narrow, err := putTable(q, v, given, x.narrow)
		switch {
		case err == nil:
		case err.distinct == 0:
			return x.misfit(r, err)
		case !x.report.round:
			return x.wrong(pack.ErrUnsupported, r, fmt.Sprintf("%s (type %s)", err.found, x.form), err.expected,
				fmt.Sprintf("the container's embeddings are int8 rows: a lossless one would need a table of 16-bit values, %d bytes more here; --round-embeddings takes the nearest int8 values and reports the error", int64(x.rows)*int64(x.cols)))
		default:
			s = x.report.nearest(q, v)
		}
		if narrow {
			x.report.narrow.Store(true)
		}
		if m.Scale[i] = s; !k.scales {
			m.WSum[i] = int32(ternary.SumInt8(q))
		}
		return nil
	})
}

// parallel calls do for the numbers 0 to n in pieces of step, several at once, in
// their order. It returns the error of the first piece that has one.
func parallel(n, step int, do func(from, to int) error) error {
	var (
		next   atomic.Int64
		mu     sync.Mutex
		failed = n // where the first piece with an error starts
		first  error
		wg     sync.WaitGroup
	)
	for range min(runtime.GOMAXPROCS(0), (n+step-1)/step) {
		wg.Go(func() {
			for {
				from := int(next.Add(int64(step))) - step
				mu.Lock()
				stop := from >= failed
				mu.Unlock()
				if stop {
					return
				}
				// The file may be mapped and shorter by now.
				if err := ternary.Guard(func() error { return do(from, min(n, from+step)) }); err != nil {
					mu.Lock()
					if from < failed {
						failed, first = from, err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return first
}
