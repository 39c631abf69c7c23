package cpu

import (
	"cmp"
	"fmt"
	"strings"

	"npack/ternary"
)

// Here, since go generate passes over files for other processors.
//
//go:generate go -C _asm run ./arm64 -out ..

// blockCols is the number of columns of a block, the unit in which weights and
// activations are laid out. Vectors of floats are padded with zeros to whole
// blocks, matrices with weights of 0.
const blockCols = 32

// kernels is one set of inner loops. Every function of every set gives the bits
// of the set "generic", which is written to be read; a test compares them on
// edge lengths and extreme values. Slices must have the lengths that the
// comments give; nothing outside them is written.
type kernels struct {
	name    string
	about   string      // one line for nrun info
	present func() bool // whether this processor has the instructions

	linear [4]*linear // for P = 1, 2, 3 (index P)

	// int8Bytes is the number of bytes a block takes in the form of activations
	// that int8Dot wants; int8Pack writes it from x [blocks][planes][32].
	int8Bytes func(planes int) int
	int8Pack  func(dst []byte, x []int8, planes, blocks int)
	// int8Dot writes sum(w*x) over blocks*32 columns for len(sums) rows, row r
	// at w[r*stride].
	int8Dot func(sums []int64, w []int8, stride int, x []byte, planes, blocks int)

	vec *vectors
}

// linear is the exact product of ternary weights and activations of P digits,
// with one arrangement of the weights.
//
// # Weights
//
// R rows are a tile. A tile is stored as blocks of 32 columns, 12R bytes each.
// What a block holds is between arrange, dot and expand; [arrangeCodes] is the
// arrangement of most.
//
// # Activations
//
// x [blocks][P][32] int8: the P base-256 digits of 32 fixed-point activations,
// lowest digit first. An arrangement may want them in another form.
//
// # Sums
//
// With a weight t = bp-bn, q is t for magnitude lo and -t for magnitude hi. All
// functions work with the codes t+1 and q+1, which are 0 to 2 and need no signs.
// With X the sum of the activations, T = sum((t+1)*x) - X and Q likewise,
// NUMERICS.md, section 4, asks for
//
//	L = (T+Q)/2, H = (T-Q)/2
//
// All are integers, so the order of summation is free.
//
// sums [2][P][R] int32: sum((t+1)*x), then sum((q+1)*x), of each row, as P
// numbers s[p] whose sum of s[p]<<8p it is.
type linear struct {
	planes  int // P
	rows    int // R
	maxCols int // up to which no sum overflows

	// arrange writes a tile of part, dst [blocks][12R], from row on; rows that
	// part does not have count as 0. It reports false if a weight is both +1 and
	// -1, or 0 with a magnitude, or if a bit is set behind the last column.
	arrange func(dst []byte, part *ternary.Matrix, row, R, blocks int) bool
	// form writes the activations x [blocks][P][32] for dot and many, dst
	// [blocks][formBytes], and returns by how much that makes all sums too large. It
	// may be nil: they are wanted as they are.
	form      func(dst, x []int8, blocks int) (more int64)
	formBytes int
	// dot writes the sums of a tile w [blocks][12R].
	dot func(sums []int32, w []byte, x []int8, blocks int)
	// many writes the sums [columns][2][P][R] of a tile with columns of
	// activations, column c at x[c*stride]. It may use scratch, of the length that
	// the function scratch tells. Up to direct columns, dot for each is quicker.
	many    func(sums []int32, w []byte, x []int8, blocks, columns, stride int, scratch []byte)
	scratch func(columns int) int
	direct  int
	// expand and dotMany are what many is made of, if it works on codes, and else
	// nil. expand writes the codes of a tile, u [blocks][8][2][4R]: byte 4r+k of
	// slot s is the code of t, then of q, of column 4s+k.
	expand func(u, w []byte, blocks int)
	// dotMany adds to sums [columns][2][P][R] those of u.
	dotMany func(sums []int32, u []byte, x []int8, blocks, columns, stride int)
	// finish writes the outputs of a tile: for each row r,
	// y[r] = (f32(L)*(lo[r]*before) + f32(H)*(hi[r]*before)) * after,
	// rounded after every operation. xsum is X.
	finish func(y []float32, sums []int32, lo, hi []float32, planes int, xsum int64, before, after float32)

	// near is how many bytes of activations the second-level cache holds beside
	// what else it must, if not what a usual one does.
	near int
	// inPlace may be nil: the set has no kernels for planes as they lie in a file. With it
	// form, if there is one, makes no sums larger.
	inPlace *inPlace
	// wide takes over in passes over wideFrom columns and more, with the same
	// weights. It may be nil, and may itself lack dot.
	wide     *linear
	wideFrom int
}

// of returns what does a pass over so many columns.
func (l *linear) of(columns int) *linear {
	if l.wide != nil && columns >= l.wideFrom {
		return l.wide
	}
	return l
}

// formed is the number of bytes of formed activations for so many columns of
// weights.
func (l *linear) formed(cols int) int {
	if l.form == nil {
		return 0
	}
	return cols / blockCols * l.formBytes
}

// mostTogether is the most columns that together returns.
const mostTogether = 64

// together is how many columns of activations of so many blocks stay near, by
// default in half of a usual second-level cache.
func (l *linear) together(blocks int) int {
	return min(max(cmp.Or(l.near, 256<<10)/(blocks*l.formBytes), 4), mostTogether)
}

// unit is the number of rows that tasks and paddings are multiples of: whole
// tiles and, since outputs are the next linear's activations, whole blocks.
func (l *linear) unit() int { return max(l.rows, blockCols) }

// codeLinears returns the linears of a set that works on [arrangeCodes]; dot and
// dotMany are for P = 1, 2, 3 (index P).
func codeLinears(rows int, dot [4]func(sums []int32, w []byte, x []int8, blocks int), expand func(u, w []byte, blocks int),
	dotMany [4]func(sums []int32, u []byte, x []int8, blocks, columns, stride int),
	finish func(y []float32, sums []int32, lo, hi []float32, planes int, xsum int64, before, after float32)) (set [4]*linear) {
	for p := 1; p <= 3; p++ {
		l := &linear{
			planes: p, rows: rows, maxCols: codeCols,
			arrange: arrangeTiles, formBytes: p * blockCols, dot: dot[p], direct: 2, expand: expand, dotMany: dotMany[p], finish: finish,
		}
		l.many, l.scratch = l.expandMany, func(int) int { return expandBlocks * 64 * rows }
		set[p] = l
	}
	return set
}

// expandBlocks is how many blocks of a tile are expanded at once: they stay in the
// first-level cache.
const expandBlocks = 8

// expandMany is many with expand and dotMany.
func (l *linear) expandMany(sums []int32, w []byte, x []int8, blocks, columns, stride int, u []byte) {
	clear(sums)
	for b := 0; b < blocks; b += expandBlocks {
		n := min(expandBlocks, blocks-b)
		l.expand(u, w[b*12*l.rows:][:n*12*l.rows], n)
		l.dotMany(sums, u, x[b*l.formBytes:], n, columns, stride)
	}
}

// vectors are the float operations of one set: NUMERICS.md, sections 3 and 5.
// Lengths are multiples of 32 unless said otherwise; padding is +0.
type vectors struct {
	// squares sets lane l to the sum of x'[c]^2 over c = l, l+256, ... rising,
	// x' = keep_50(x). len(x) is a multiple of 16.
	squares func(lanes *[256]float32, x []float32)
	// normScale sets y = keep_50((keep_50(x)*r)*g). y may be x. Multiples of 16.
	normScale func(y, x, g []float32, r float32)
	// absMax returns the largest bit pattern of |x|, which orders like |x| and
	// is at least 0x7f800000 if any x is not finite. Multiples of 16.
	absMax func(x []float32) uint32
	// quantize writes the digits of rhe(x*up) to q [len(x)/32][P][32] and
	// returns the sum of rhe(x*up). |x*up| < 2^23.
	quantize [4]func(q []int8, x []float32, up float32) int64
	// siluMul sets y = keep_50(silu(g)) * keep_50(u). y may be g or u.
	siluMul func(y, g, u []float32)
	// add sets x = x + y. Multiples of 8.
	add func(x, y []float32)

	// Conversions of keys and values. Multiples of 16.
	toHalf   func(dst []uint16, src []float32)
	fromHalf func(dst []float32, src []uint16)
	fromInt8 func(dst []float32, src []int8, scale float32)
	// rotate sets a, b = a*cos - b*sin, b*cos + a*sin, both after keep_50 of
	// the result. Any length, the same for all.
	rotate func(a, b, cos, sin []float32)

	// scores sets s[j] = dot(q, keys[j*dim:])*scale in the 16 lanes of
	// NUMERICS.md. dim = len(q), a multiple of 16; len(s) <= 64.
	scores func(s, q, keys []float32, scale float32)
	// mix sets o[d] = keep_40(sum over j rising, from +0, of p[j]*v[j*len(o)+d]).
	// len(o) is a multiple of 16.
	mix func(o, p, v []float32)
	// addScaled sets o[d] = o[d] + x[d]*w, scale o[d] = o[d]*w. Multiples of 16.
	addScaled func(o, x []float32, w float32)
	scale     func(o []float32, w float32)

	// softmax takes the n scores of a chunk: m is the largest, s[j] becomes
	// exp(s[j]-m), 0 from n on, and l is the fold of all 64. If a score is not
	// finite, it reports that and the rest is undefined. Of zeros of both signs
	// either may be m.
	softmax func(s *[64]float32, n int) (m, l float32, finite bool)

	// scoresHalf and mixHalf are scores and mix on halves, for all heads that
	// share keys and values: q and o are [heads][dim], s and p [heads][64]. There
	// are len(k)/dim keys; s is undefined behind their scores. Memory from ahead
	// on, as much as k or v has, is about to be read: it may be fetched. A set
	// may lack both; then fromHalf goes before scores and mix.
	scoresHalf func(s, q []float32, k, ahead []uint16, dim int, scale float32)
	mixHalf    func(o, p []float32, v, ahead []uint16, dim int)
}

// codeCols is the number of columns up to which 32-bit sums of digits, each at
// least -128, with codes, at most 2, are safe, also where a set multiplies codes
// of a quarter of the columns by 16 until the end.
const codeCols = 1 << 21

// sets returns the sets of this build, best first. The last runs everywhere.
func sets() []*kernels { return append(archSets(), &generic) }

// Kernels describes a set of kernels to people.
type Kernels struct {
	Name     string `json:"name"`
	About    string `json:"about"`
	Present  bool   `json:"present"`   // whether this processor can run it
	ZeroCopy bool   `json:"zero_copy"` // whether it can do so on weights as they lie in a file
}

// KernelSets lists the sets of kernels in this program, best first.
func KernelSets() []Kernels {
	var list []Kernels
	for _, k := range sets() {
		list = append(list, Kernels{k.name, k.about, k.present(), k.present() && k.worksInPlace()})
	}
	return list
}

// choose returns the set of that name, or for "" the best that this processor
// can run.
func choose(name string) (*kernels, error) {
	var names []string
	for _, k := range sets() {
		names = append(names, k.name)
		if name != "" && name != k.name || name == "" && !k.present() {
			continue
		}
		if !k.present() {
			return nil, fmt.Errorf("this processor lacks the instructions of kernels %q", name)
		}
		return k, nil
	}
	return nil, fmt.Errorf("no kernels %q: there are %s", name, strings.Join(names, ", "))
}
