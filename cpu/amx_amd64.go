//go:build !noasm

package cpu

import "github.com/klauspost/cpuid/v2"

//go:generate go -C _asm run ./amx -out ../amx_amd64.s

// amx is avx512vnni with tiles for passes over many columns. Where the system does
// not give tiles to programs that ask for them, it is absent.
var amx = func() kernels {
	k := avx512vnni
	k.name, k.about = "amx", "avx512vnni with matrix tiles (AMX-INT8) for batches, Xeon servers since 2023, on Linux"
	k.present = func() bool {
		return avx512vnni.present() && cpuid.CPU.Supports(cpuid.AMXTILE, cpuid.AMXINT8) && tilesPermitted()
	}
	for p := 1; p <= 3; p++ {
		l := *k.linear[p]
		l.wideFrom, l.wide = 8, tileLinear(p)
		k.linear[p] = &l
	}
	return k
}()

// tileBlocks is how many blocks of weights are expanded at once: sums go to memory
// and back as seldom as the first-level cache, of 48 KiB, allows.
const tileBlocks = 32

// tileColumns is how many columns two tiles hold.
const tileColumns = 32

// tileLinear returns the linear that works on tiles: activations, 64 columns of
// weights wide, times the codes of 64 columns and 16 rows, which expandAVX512
// writes as the instructions want them. It has no dot: it takes any number of
// columns, if not all as quickly.
//
// So that 64 digits follow each other, form gathers them: [P][blocks][32]. Tiles of
// 16 rows leave the unit at a block, so that form and many see as many blocks.
//
// An element of a tile is a sum of 32 bits to which products are added as they are:
// up to codeCols columns it is exact.
func tileLinear(planes int) *linear {
	l := &linear{
		planes: planes, rows: 16, maxCols: codeCols, near: 1 << 20,
		arrange: arrangeTiles, formBytes: planes * blockCols, finish: avx512vnni.linear[planes].finish,
		scratch: func(int) int { return tileBlocks * 1024 },
	}
	if planes > 1 {
		l.form = func(dst, x []int8, blocks int) (more int64) {
			for b := range blocks {
				for p := range planes {
					copy(dst[(p*blocks+b)*blockCols:][:blockCols], x[(b*planes+p)*blockCols:][:blockCols])
				}
			}
			return 0
		}
	}
	size := 2 * planes * l.rows
	l.many = func(sums []int32, w []byte, x []int8, blocks, columns, stride int, u []byte) {
		clear(sums)
		for b := 0; b < blocks; b += tileBlocks {
			n := min(tileBlocks, blocks-b)
			expandAVX512(&u[0], &w[b*12*l.rows], n)
			for c := 0; c < columns; c += tileColumns {
				dotTiles(sums[c*size:], u, x[c*stride+b*blockCols:], n, min(tileColumns, columns-c), stride, planes, blocks*blockCols)
			}
		}
	}
	return l
}

// dotTiles adds to sums [columns][2][P][16] those of codes u, as dotMany does; the
// digits of a plane lie plane bytes behind those of the one before.
func dotTiles(sums []int32, u []byte, x []int8, blocks, columns, stride, planes, plane int) {
	const vector = 16 * 4 // bytes of the sums of a digit
	sumStride := 2 * planes * vector
	var passes [3]tilePass
	var rows [2]int
	n := 0
	if columns > 16 || planes == 1 { // two tiles of columns, digit by digit
		rows = [2]int{(columns + 1) / 2, max(columns/2, 1)}
		second := columns - rows[1] // a single column is both
		for ; n < planes; n++ {
			passes[n] = tilePass{n * plane, n*plane + second*stride, n * vector, n*vector + second*sumStride}
		}
	} else { // two digits of a tile of columns; the last of three is both
		rows = [2]int{columns, columns}
		for p := 0; p < planes; p += 2 {
			q := min(p+1, planes-1)
			passes[n] = tilePass{p * plane, q * plane, p * vector, q * vector}
			n++
		}
	}
	if blocks > 1 {
		config := tileShapes(rows, 2*blockCols)
		tilesAMX(&config, &passes[0], n, &sums[0], &u[0], &x[0], blocks/2, stride, sumStride)
	}
	if blocks%2 == 1 {
		config := tileShapes(rows, blockCols)
		tilesAMX(&config, &passes[0], n, &sums[0], &u[(blocks-1)*1024], &x[(blocks-1)*blockCols], 1, stride, sumStride)
	}
}

// tileConfig is what LDTILECFG reads.
type tileConfig struct {
	palette  byte
	_        [15]byte
	rowBytes [16]uint16
	rows     [16]byte
}

// tileShapes are the shapes of tilesAMX's tiles: 0 and 1, 2 and 3 are the sums of
// rows columns, 4 and 5 their activations, of depth bytes each, 6 and 7 codes.
func tileShapes(rows [2]int, depth int) (c tileConfig) {
	c.palette = 1
	for t, shape := range [...]struct{ rows, bytes int }{
		{rows[0], 64}, {rows[0], 64}, {rows[1], 64}, {rows[1], 64}, {rows[0], depth}, {rows[1], depth}, {depth / 4, 64}, {depth / 4, 64},
	} {
		c.rows[t], c.rowBytes[t] = byte(shape.rows), uint16(shape.bytes)
	}
	return c
}

// tilePass is what is multiplied at the same time: the offsets, in bytes, of two
// tiles of activations in x and of their sums by t. They may be the same.
type tilePass struct{ x0, x1, sum0, sum1 int }

// tilesAMX adds to the sums of n passes the products of their activations with
// steps*64 columns of codes. Rows of activations are xStride bytes apart, rows of
// sums sumStride, and sums by q half of that behind those by t.
//
// The state of tiles lives in this call alone: between calls a goroutine may move
// to another thread.
//
//go:noescape
func tilesAMX(config *tileConfig, passes *tilePass, n int, sums *int32, u *byte, x *int8, steps, xStride, sumStride int)
