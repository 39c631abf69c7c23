//go:build !noasm

package cpu

import (
	"github.com/klauspost/cpuid/v2"

	"npack/ternary"
)

//go:generate go -C _asm run ./avxvnni -out ../avxvnni_amd64.s -pkg cpu

// avxvnni is for processors with VPDPBUSD on 256 bits but without AVX-512. All its
// linears work on codes: fewer instructions than the tables of avx2, but for batches
// of few columns (_asm/count prints how many).
var avxvnni = kernels{
	name: "avxvnni", about: "256-bit integers with VNNI, Intel's desktops since 2021",
	present:   func() bool { return hasAVX2() && cpuid.CPU.Supports(cpuid.AVXVNNI) },
	linear:    vnniLinears(),
	int8Bytes: func(planes int) int { return planes * blockCols },
	int8Pack: func(dst []byte, x []int8, planes, blocks int) {
		for i, v := range x[:blocks*planes*blockCols] {
			dst[i] = byte(v)
		}
	},
	int8Dot: int8DotVNNI,
	vec:     &avx2Vectors,
}

const (
	vnniRows  = 64               // R
	vnniVec   = 8                // rows of a vector of sums
	vnniBlock = 12 * vnniVec     // bytes of 8 rows and 32 columns
	vnniGroup = 8                // blocks of 8 rows in a row
	vnniPart  = vnniGroup / 2    // of a group whose codes, 16 KiB, and spread digits, 7, fit the smallest first-level cache
	vnniCodes = 8 * 8 * vnniRows // bytes of the codes of a block
)

// vnniLinears are for tiles of 64 rows: that many share digits once they have been
// spread to vectors.
func vnniLinears() (set [4]*linear) {
	for i, k := range []struct {
		dot     func(sums *int32, w *byte, x *int8, blocks int)
		dotMany func(sums *int32, u *byte, x *int8, blocks, columns, stride int, spread *byte)
		direct  int // up to which dot takes fewer instructions
	}{{dot1AVXVNNI, dotMany1AVXVNNI, 2}, {dot2AVXVNNI, dotMany2AVXVNNI, 2}, {dot3AVXVNNI, dotMany3AVXVNNI, 3}} {
		planes := i + 1
		set[planes] = &linear{
			planes: planes, rows: vnniRows, maxCols: codeCols,
			arrange: arrangeGroupTiles, formBytes: planes * blockCols,
			dot:    func(sums []int32, w []byte, x []int8, blocks int) { k.dot(&sums[0], &w[0], &x[0], blocks) },
			direct: k.direct,
			many: func(sums []int32, w []byte, x []int8, blocks, columns, stride int, scratch []byte) {
				clear(sums)
				eachVNNIPart(blocks, func(b, n, at, stride8 int) {
					expandAVXVNNI(&scratch[0], &w[at], n, stride8)
					k.dotMany(&sums[0], &scratch[0], &x[b*planes*blockCols], n, columns, stride, &scratch[vnniPart*vnniCodes])
				})
			},
			scratch: func(int) int { return vnniPart * (vnniCodes + 8*7*32) },
			expand: func(u, w []byte, blocks int) {
				eachVNNIPart(blocks, func(b, n, at, stride8 int) { expandAVXVNNI(&u[b*vnniCodes], &w[at], n, stride8) })
			},
			finish: avx2.linear[planes].finish,
		}
	}
	return set
}

// eachVNNIPart calls f for parts of groups: n blocks from b on, which lie from at on
// for the first 8 rows and stride8 further for the next 8.
func eachVNNIPart(blocks int, f func(b, n, at, stride8 int)) {
	for b := 0; b < blocks; b += vnniPart {
		first := b / vnniGroup * vnniGroup
		stride8 := min(vnniGroup, blocks-first) * vnniBlock
		f(b, min(vnniPart, blocks-b), first*12*vnniRows+(b-first)*vnniBlock, stride8)
	}
}

// arrangeGroups is [linear].arrange: for each group of 8 blocks and each 8 rows
// those blocks as [arrangeCodes] arranges them. The last group may be smaller.
func arrangeGroups(dst []byte, part *ternary.Matrix, row, R, blocks int) (valid bool) {
	valid = true
	rows := make([]byte, blocks*vnniBlock)
	for v := range R / vnniVec {
		valid = arrangeCodes(rows, part, row+v*vnniVec, vnniVec, blocks) && valid
		for b := 0; b < blocks; b += vnniGroup {
			n := min(vnniGroup, blocks-b)
			copy(dst[b*12*R+v*n*vnniBlock:], rows[b*vnniBlock:][:n*vnniBlock])
		}
	}
	return valid
}

// arrangeGroupTiles is arrangeGroups, as arrangeTiles is arrangeCodes.
func arrangeGroupTiles(dst []byte, part *ternary.Matrix, row, R, blocks int) (valid bool) {
	const cols, size = vnniGroup * blockCols, vnniGroup * vnniBlock
	if part.Cols%cols != 0 || part.Rows-row < R {
		return arrangeGroups(dst, part, row, R, blocks)
	}
	var bad uint32
	for at := 0; at < len(dst); at += size {
		i := at / size
		from := (row+i%(R/vnniVec)*vnniVec)*part.Stride + i/(R/vnniVec)*cols/8
		bad |= arrangeCodesAVX2(&dst[at], &part.BP[from], &part.BN[from], &part.BR[from], part.Stride, 1, vnniBlock/3)
	}
	return bad == 0
}

// int8DotVNNI lets 32-bit sums run for 2^13 blocks at most.
func int8DotVNNI(sums []int64, w []int8, stride int, x []byte, planes, blocks int) {
	kernel := [...]func(sums *int64, w *int8, stride int, x *byte, blocks, rows int){1: int8Dot1AVXVNNI, 2: int8Dot2AVXVNNI, 3: int8Dot3AVXVNNI}[planes]
	const run = 1 << 13
	clear(sums)
	for b := 0; b < blocks && len(sums) > 0; b += run {
		kernel(&sums[0], &w[b*blockCols], stride, &x[b*planes*blockCols], min(run, blocks-b), len(sums))
	}
}

// The functions below want counts above 0. Where they do not say otherwise,
// their reference is the generic kernel of the same name.

//go:noescape
func dot1AVXVNNI(sums *int32, w *byte, x *int8, blocks int)

//go:noescape
func dot2AVXVNNI(sums *int32, w *byte, x *int8, blocks int)

//go:noescape
func dot3AVXVNNI(sums *int32, w *byte, x *int8, blocks int)

// expandAVXVNNI is expand for 8 times 8 rows, whose blocks lie stride bytes apart.
//
//go:noescape
func expandAVXVNNI(u, w *byte, blocks, stride int)

// dotMany1AVXVNNI is dotMany for vnniPart blocks at most. spread has 8 vectors of 32
// bytes for each of them and of up to 7 digits.
//
//go:noescape
func dotMany1AVXVNNI(sums *int32, u *byte, x *int8, blocks, columns, stride int, spread *byte)

//go:noescape
func dotMany2AVXVNNI(sums *int32, u *byte, x *int8, blocks, columns, stride int, spread *byte)

//go:noescape
func dotMany3AVXVNNI(sums *int32, u *byte, x *int8, blocks, columns, stride int, spread *byte)

// int8Dot1AVXVNNI adds to sums what int8Dot writes, for one digit;
// blocks <= 2^13.
//
//go:noescape
func int8Dot1AVXVNNI(sums *int64, w *int8, stride int, x *byte, blocks, rows int)

// int8Dot2AVXVNNI is int8Dot1AVXVNNI for two digits.
//
//go:noescape
func int8Dot2AVXVNNI(sums *int64, w *int8, stride int, x *byte, blocks, rows int)

// int8Dot3AVXVNNI is int8Dot1AVXVNNI for three digits.
//
//go:noescape
func int8Dot3AVXVNNI(sums *int64, w *int8, stride int, x *byte, blocks, rows int)
