package ptx

import (
	"fmt"
	"math/bits"
	"strings"
)

// warpOp decodes the instructions in which the lanes of a warp work together. They
// run with all 32 lanes.
func (k *kernel) warpOp(s *statement) (func(w *warp, m uint32), error) {
	switch op := strings.Join(s.op, "."); op {
	case "shfl.sync.bfly.b32":
		r, err := k.operands(s.args[:min(3, len(s.args))])
		if err != nil || len(s.args) != 5 || s.args[3] != "31" || !fullMask(s.args[4]) {
			return nil, fmt.Errorf("only shuffles of whole warps: %w", err)
		}
		return func(w *warp, _ uint32) {
			v := w.r[r[1]] // a copy: result and operand may be one register
			for l := range v {
				w.r[r[0]][l] = v[l^int(w.r[r[2]][l]&31)]
			}
		}, nil
	case "vote.sync.ballot.b32":
		r, err := k.operands(s.args[:min(2, len(s.args))])
		if err != nil || len(s.args) != 3 || !fullMask(s.args[2]) {
			return nil, fmt.Errorf("only votes of whole warps: %w", err)
		}
		return func(w *warp, _ uint32) {
			var all uint64
			for l, v := range w.r[r[1]] {
				all |= v << l
			}
			for l := range w.r[r[0]] {
				w.r[r[0]][l] = all
			}
		}, nil
	case "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32":
		return k.matrix(s, 4, dp4a)
	case "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc":
		return k.matrix(s, 4, func(a, b, c uint32) uint32 { return c + uint32(bits.OnesCount32(a&b)) })
	}
	return nil, fmt.Errorf("unknown warp instruction")
}

func fullMask(s string) bool {
	v, err := number(s)
	return err == nil && uint32(v) == allLanes
}

func (k *kernel) operands(args []string) (r []int, err error) {
	for _, a := range args {
		i, err := k.operand(a)
		if err != nil {
			return nil, err
		}
		r = append(r, i)
	}
	return r, nil
}

// matrix decodes mma.sync of shape 16 x 8 with 8 words of elements in a row of A and
// in a column of B. dot adds the product of two words to c.
//
// Lane 4g+t has (PTX ISA, "Matrix Fragments for mma.m16n8k32" and "…k256"):
// words t and t+4 of rows g (a0, a2) and g+8 (a1, a3) of A; words t and t+4 of
// column g (b0, b1) of B; columns 2t and 2t+1 of rows g (c0, c1) and g+8 (c2, c3).
func (k *kernel) matrix(s *statement, half int, dot func(a, b, c uint32) uint32) (func(w *warp, m uint32), error) {
	if len(s.args) != 4 {
		return nil, fmt.Errorf("four fragments expected")
	}
	var r [4][]int
	for i, n := range [4]int{4, 4, 2, 4} {
		names := strings.Split(strings.Trim(s.args[i], "{}"), ",")
		for j := range names {
			names[j] = strings.TrimSpace(names[j])
		}
		var err error
		if r[i], err = k.operands(names); err != nil || len(r[i]) != n {
			return nil, fmt.Errorf("fragment %d: %d registers expected: %w", i, n, err)
		}
	}
	return func(w *warp, _ uint32) {
		var a [16][8]uint32
		var b [8][8]uint32
		for l := range 32 {
			g, t := l>>2, l&3
			reg := func(i, j int) uint32 { return uint32(w.r[r[i][j]][l]) }
			a[g][t], a[g+8][t], a[g][t+half], a[g+8][t+half] = reg(1, 0), reg(1, 1), reg(1, 2), reg(1, 3)
			b[g][t], b[g][t+half] = reg(2, 0), reg(2, 1)
		}
		for l := range 32 {
			g, t := l>>2, l&3
			for j := range 4 {
				row, col := &a[g+j>>1*8], &b[2*t+j&1]
				c := uint32(w.r[r[3][j]][l])
				for i := range row {
					c = dot(row[i], col[i], c)
				}
				w.r[r[0][j]][l] = uint64(c)
			}
		}
	}, nil
}
