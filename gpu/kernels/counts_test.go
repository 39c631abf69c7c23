package kernels_test

import (
	"fmt"
	"strings"
	"testing"

	"npack/gpu"
	"npack/gpu/kernels"
	"npack/gpu/ptx"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

// count is what kernels carry out: instructions of warps, but for threads.
type count struct {
	threads int64 // instructions, each as often as threads took part
	all     int64
	ints    int64 // of all: integer arithmetic and logic
	floats  int64 // of all: f32 arithmetic
	matrix  int64 // of all: int8 products of 16x8x32
	weights int64 // bytes that were loaded past the first-level cache: weights
}

func (c count) times(n int64) count {
	return count{n * c.threads, n * c.all, n * c.ints, n * c.floats, n * c.matrix, n * c.weights}
}

// counted is what the interpreter saw of a kernel.
func counted(c *card, kernel string) (n count) {
	for _, k := range c.Counts(kernel) {
		n.threads += k.Threads
		n.all += k.Warps
		op, _, _ := strings.Cut(k.Op, ".")
		switch {
		case strings.HasPrefix(k.Op, "mma.sync.aligned.m16n8k32"):
			n.matrix += k.Warps
		case strings.HasPrefix(k.Op, "ld.global.cs.nc.v4"):
			n.weights += 16 * k.Threads
		case strings.HasSuffix(k.Op, ".f32"):
			if op != "mov" && op != "ld" && op != "st" {
				n.floats += k.Warps
			}
		default:
			switch op {
			case "mma", "mov", "ld", "st", "atom", "bra", "bar", "ret", "shfl":
			default:
				n.ints += k.Warps
			}
		}
	}
	return n
}

// block is a block of a linear or of the output embedding.
type block struct {
	kernel     string
	capability int
	cols       int // of the matrix
	n, planes  int // of the activations
}

// rows is the number of rows that a block takes.
func (b block) rows() int {
	if b.kernel == "tern_many" {
		return 8 * kernels.StripRows
	}
	return kernels.StripRows
}

// count runs one block on the interpreter.
func (b block) count(t testing.TB) count {
	d, err := ptx.New(b.capability)
	if err != nil {
		t.Fatal(err)
	}
	c := &card{Device: d, t: t}
	r := random(1)
	q := randomColumns(r, b.n, b.cols, b.planes)
	rows, tiles := b.rows(), kernels.Tiles(b.cols)
	strips := kernels.Strips(rows)
	x := packDigits(q, b.planes, tiles)
	if b.kernel == "tern_bits" {
		x = packBits(q, b.planes, tiles)
	}
	xs, y := upload(c, make([]float32, b.n)), c.room(b.n*rows)
	if strings.HasPrefix(b.kernel, "head") {
		table := randomTable(r, rows, b.cols)
		packed := make([]byte, kernels.TableBytes(strips, tiles))
		kernels.PackTable(packed, table, 0)
		c.launch(b.kernel, 1, 1, 1, c.bytes(packed), upload(c, table.Scale), upload(c, x), xs, y,
			num(tiles), num(strips), num(rows), num(b.n), num(rows), num(b.planes))
	} else {
		w, s, bias := c.matrix([]*ternary.Matrix{randomMatrix(r, rows, b.cols, "")}, []kernels.Place{kernels.Whole}, strips)
		c.launch(b.kernel, 1, 1, 1, w, s, bias, upload(c, x), xs, y, c.room(b.n),
			num(tiles), num(strips), num(rows), num(b.n), num(rows), num(b.planes), num(0))
	}
	return counted(c, b.kernel)
}

// attentionBlocks counts a block of attn_f16, a chunk of 64 positions, and a block of
// attn_join over a number of chunks, at decode in the shape of a model.
func attentionBlocks(t testing.TB, m *ternary.Config, chunks int) (attn, join count) {
	d, err := ptx.New(80)
	if err != nil {
		t.Fatal(err)
	}
	c := &card{Device: d, t: t}
	zeros := func(n int) gpu.Arg { return upload(c, make([]float32, n)) }
	pos, part, mix := upload(c, []int32{int32(64*chunks - 1)}), zeros(chunks*m.Heads*2), zeros(chunks*m.Heads*m.HeadDim)
	c.launch("attn_f16", 1, 1, 1, zeros(m.Heads*m.HeadDim), zeros(kernels.CacheStep*m.KVDim()), gpu.Arg{}, pos, part, mix, zeros(1),
		num(m.Heads), num(m.KVHeads), num(m.HeadDim), num(0), num(chunks), real32(0.1), num(0))
	c.launch("attn_join", 1, 1, 1, part, mix, pos, c.room(m.QDim()), zeros(1), num(m.Heads), num(m.HeadDim), num(0), num(chunks), num(m.QDim()))
	return counted(c, "attn_f16"), counted(c, "attn_join")
}

// TestCounts prints what docs/gpu.md says of the kernels' instructions: of a block with
// 4,096 columns of weights, and in the loop that NVIDIA's assembler makes. What a
// kernel loads of weights is what there is.
func TestCounts(t *testing.T) {
	const cols = 4096
	loops := readSASS(t)["sm_89"]
	out := []string{"| kernel | columns | of the kernel | of its loop | a weight and column |", "|---|--:|--:|--:|--:|"}
	for _, b := range []block{
		{"tern_bits", 80, cols, 1, 3}, {"tern_bits", 80, cols, 1, 1}, {"tern_dot", 70, cols, 1, 3}, {"tern_mma", 80, cols, 1, 3},
		{"tern_mma", 80, cols, 8, 3}, {"tern_many", 80, cols, 24, 3}, {"head_dot", 80, cols, 1, 3}, {"head_mma", 80, cols, 8, 3},
	} {
		bits := int64(3)
		if strings.HasPrefix(b.kernel, "head") {
			bits = 8
		}
		c, weights := b.count(t), int64(b.rows()*cols)
		if c.weights != bits*weights/8 {
			t.Errorf("%+v loads %d bytes of weights, there are %d", b, c.weights, bits*weights/8)
		}
		loop, tile := "", float64(kernels.StripRows*kernels.TileCols)
		if b.kernel == "tern_bits" {
			tile *= 2
		}
		if b.planes == 3 && b.n == map[string]int{"tern_mma": 8, "tern_many": 24, "head_mma": 8}[b.kernel] || strings.HasSuffix(b.kernel, "_dot") || b.kernel == "tern_bits" && b.planes == 3 {
			loop = fmt.Sprintf(" %.2f", 32*float64(loops[b.kernel].Loop)/tile)
		}
		digits := ""
		if b.planes == 1 {
			digits = ", 1 digit"
		}
		out = append(out, fmt.Sprintf("| `%s`%s | %d | %.2f |%s | %.2f |", b.kernel, digits, b.n,
			float64(c.threads)/float64(weights), loop, float64(c.threads)/float64(weights)/float64(b.n)))
	}
	m := ternarytest.Qwen8B()
	attn, _ := attentionBlocks(t, &m, 1)
	each := float64(attn.threads) / float64(kernels.Chunk*2*m.HeadDim) // a block is of one head of keys and values
	documented(t, "counts", append(out, fmt.Sprintf("| `attn_f16`, an element of the cache | 1 | %.2f | | %.2f |", each, each)))
}
