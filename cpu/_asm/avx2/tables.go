package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A sum of four activations is looked up, not computed: VPSHUFB does that for 32
// rows, with four bits of each row's weights as the index into the 16 sums that
// there can be. Sums are cut into digits, and bytes hold the sum of several lookups
// of a digit: two of 7 bits or four of 6.
const (
	tabRows   = 64                    // R
	table     = 16                    // bytes: a digit of the sums of four columns
	group     = 3 * tabRows           // bytes of 8 columns: bits p, q and n, a byte a row
	bitsBlock = blockCols / 8 * group // of 32 columns
	lines     = bitsBlock / 64        // of the cache
	nibbles   = 2 * bitsBlock         // a block with four columns a byte
	segment   = 4                     // blocks whose nibbles stay in the first-level cache for all digits
	segmentOf = 8                     // and for all columns, if there are several
	maxTables = 64                    // blocks that 16 bits can sum: 64 * 4 * 2*127 = 65024
	accs      = 2 * group / vec       // sums of a digit: [p, q, n][half of the rows][all, high]
)

// tabled is the linear for activations of so many planes.
type tabled struct {
	planes int
	widths []int // bits of the digits of a sum of four activations, lowest first
}

var tableds = []tabled{{2, []int{6, 6, 6}}, {3, []int{7, 7, 6, 6}}}

// bias is added to all sums of a table: then none is negative. It is 128 in each
// base-256 digit of four activations.
func (k tabled) bias() uint32 { return 4 * 128 * 0x010101 & (1<<(8*k.planes+2) - 1) }

func (k tabled) tableBlock() int { return 8 * len(k.widths) * table }          // bytes of 32 columns: [4 columns][digit][sum]
func (k tabled) sums16() int     { return len(k.widths) * accs * vec }         // bytes of a column's 16-bit sums
func (k tabled) sums32() uint32  { return uint32(2 * k.planes * tabRows * 4) } // and of its 32-bit ones

func (k tabled) name(s string) string { return fmt.Sprintf("%s%dAVX2", s, k.planes) }

// lookUp is [linear].dot on w [blocks][4][p, q, n][64] (see arrangeBits in package cpu)
// and tables [blocks][8][digit][16].
func (k tabled) lookUp() {
	TEXT(k.name("lookUp"), 0, "func(sums *int32, w *byte, tables *int8, blocks int)")
	frame := AllocLocal(segment*nibbles + k.sums16() + vec)
	u := GP64()
	LEAQ(frame.Offset(vec-1), u)
	ANDQ(I8(-vec), u)
	k.lookUpColumns(segment, u, nil, nil)
}

// lookUpMany is [linear].many: a block is split into nibbles once for all columns.
// scratch has segmentOf*nibbles bytes and sums16 for each column.
func (k tabled) lookUpMany() {
	TEXT(k.name("lookUpMany"), NOSPLIT, "func(sums *int32, w *byte, tables *int8, blocks, columns, stride int, scratch *byte)")
	k.lookUpColumns(segmentOf, Load(Param("scratch"), GP64()), Load(Param("columns"), GP64()), Load(Param("stride"), GP64()))
}

// lookUpColumns writes sums [columns][2][P][64]; the tables of a column begin
// stride bytes behind those of the one before. columns may be nil, for one.
//
// A segment of blocks at a time is split into nibbles, which then serve every
// column and digit. Registers hold a digit's 16-bit sums meanwhile; those of all
// columns and digits wait in memory until they are full.
func (k tabled) lookUpColumns(segment int, u, columns, stride Register) {
	w := Load(Param("w"), GP64())
	tables := Load(Param("tables"), GP64())
	blocks := Load(Param("blocks"), GP64())
	each := func(label string, do func(), next func()) {
		if columns == nil {
			do()
			return
		}
		c := GP64()
		MOVQ(columns, c)
		Label(label)
		do()
		next()
		DECQ(c)
		JNZ(LabelRef(label))
	}

	Comment("What the bias makes sums too large by: 512 in each digit of 8 tables, for p, q twice and n once.")
	start32, start := GP32(), YMM()
	IMUL3L(I32(-512*8*3), blocks.(GPVirtual).As32(), start32)
	VMOVD(start32, start.AsX())
	VPBROADCASTD(start.AsX(), start)
	sums := Load(Param("sums"), GP64())
	each("start", func() {
		for i := range k.sums32() / vec {
			VMOVDQU(start, Mem{Base: sums, Disp: int(i) * vec})
		}
	}, func() { ADDQ(U32(k.sums32()), sums) })

	Label("chunk")
	zero, acc := zeros(1)[0], GP64()
	LEAQ(Mem{Base: u, Disp: segment * nibbles}, acc)
	each("clear", func() {
		for i := range k.sums16() / vec {
			VMOVDQU(zero, Mem{Base: acc, Disp: i * vec})
		}
	}, func() { ADDQ(U32(uint32(k.sums16())), acc) })
	left := take(blocks, maxTables)

	Label("segment")
	n := take(left, segment)
	split(w, u, n)
	from, t := GP64(), GP64()
	LEAQ(Mem{Base: u, Disp: segment * nibbles}, from)
	MOVQ(tables, t)
	each("column", func() {
		next := GP64()
		LEAQ(Mem{Base: w, Disp: segment * bitsBlock}, next)
		for d, bits := range k.widths {
			share := lines / len(k.widths)
			if bits == 7 || bits == 6 && columns == nil {
				k.add(d, 2, u, t, from, n, next, share, 0, 1, 2, 3, 4, 5)
			} else { // tables of more lookups take more registers than there are beside all sums
				k.add(d, 1<<(8-bits), u, t, from, n, next, (share+1)/2, 0, 2, 4)
				k.add(d, 1<<(8-bits), u, t, from, n, next, share/2, 1, 3, 5)
			}
		}
	}, func() {
		ADDQ(stride, t)
		ADDQ(U32(uint32(k.sums16())), from)
	})
	IMUL3Q(U32(uint32(k.tableBlock())), n, n)
	ADDQ(n, tables)
	TESTQ(left, left)
	JNZ(LabelRef("segment"))

	LEAQ(Mem{Base: u, Disp: segment * nibbles}, acc)
	sums = Load(Param("sums"), GP64())
	each("flush", func() {
		for d := range k.widths {
			k.flush(Mem{Base: acc, Disp: d * accs * vec}, Mem{Base: sums}, d)
		}
	}, func() {
		ADDQ(U32(uint32(k.sums16())), acc)
		ADDQ(U32(k.sums32()), sums)
	})
	TESTQ(blocks, blocks)
	JNZ(LabelRef("chunk"))
	VZEROUPPER()
	RET()
}

// take returns how many of what is left are done next, most at a time, and takes
// them off.
func take(left Register, most int) Register {
	n := GP64()
	MOVL(U32(uint32(most)), n.As32())
	CMPQ(left, n)
	CMOVQLT(left, n)
	SUBQ(n, left)
	return n
}

// split writes n blocks as nibbles, a byte each, and moves w behind them.
func split(w, u, n Register) {
	to, groups, low := GP64(), GP64(), load(nibble)
	MOVQ(u, to)
	MOVQ(n, groups)
	SHLQ(Imm(2), groups)
	Label("split")
	for i := range group / vec {
		a, b := load(Mem{Base: w, Disp: i * vec}), YMM()
		VPSRLW(Imm(4), a, b)
		VPAND(low, a, a)
		VPAND(low, b, b)
		VMOVDQU(a, Mem{Base: to, Disp: i * vec})
		VMOVDQU(b, Mem{Base: to, Disp: group + i*vec})
	}
	ADDQ(U32(group), w)
	ADDQ(U32(2*group), to)
	DECQ(groups)
	JNZ(LabelRef("split"))
}

// add adds the products of digit d in n blocks of nibbles to sums, together lookups
// in a byte, for those vectors of a group, and fetches n times some lines of later
// weights from next on: in order, so that the processor's own prefetching joins in. A
// byte is added as a part of 16 bits: of a word's two rows, the sum of the upper one is
// had by itself, that of both together modulo 2^16.
func (k tabled) add(d, together int, nibblesAt, tables, sums, n, next Register, lines int, vectors ...int) {
	label := fmt.Sprintf("digit%dFrom%d", d, vectors[0])
	u, t, left := GP64(), GP64(), GP64()
	MOVQ(nibblesAt, u)
	LEAQ(Mem{Base: tables, Disp: d * table}, t)
	MOVQ(n, left)
	all, high := make([]VecVirtual, len(vectors)), make([]VecVirtual, len(vectors))
	at := func(i int) Mem { return Mem{Base: sums, Disp: (d*accs + 2*vectors[i]) * vec} }
	for i := range vectors {
		all[i], high[i] = load(at(i)), load(at(i).Offset(vec))
	}

	Label(label)
	for i := range lines {
		PREFETCHT0(Mem{Base: next, Disp: i * 64})
	}
	ADDQ(U32(uint32(lines)*64), next)
	for first := 0; first < blockCols/4; first += together {
		entries := make([]VecVirtual, together)
		for j := range entries {
			entries[j] = YMM()
			VBROADCASTI128(Mem{Base: t, Disp: (first + j) * len(k.widths) * table}, entries[j])
		}
		for i, v := range vectors {
			var sum VecVirtual
			for j, e := range entries {
				a := YMM()
				VPSHUFB(Mem{Base: u, Disp: (first+j)*group + v*vec}, e, a)
				if sum == nil {
					sum = a
				} else {
					VPADDB(a, sum, sum)
				}
			}
			VPADDW(sum, all[i], all[i])
			VPSRLW(Imm(8), sum, sum)
			VPADDW(sum, high[i], high[i])
		}
	}
	ADDQ(U32(nibbles), u)
	ADDQ(U32(uint32(k.tableBlock())), t)
	DECQ(left)
	JNZ(LabelRef(label))

	for i := range vectors {
		VMOVDQU(all[i], at(i))
		VMOVDQU(high[i], at(i).Offset(vec))
	}
}

// flush adds the 16-bit sums of digit d, 2p+n and 2q+n, to the 32-bit ones. The
// digit counts 2^weight, which is a multiple of 256^plane.
func (k tabled) flush(acc, sums Mem, d int) {
	weight := 0
	for _, bits := range k.widths[:d] {
		weight += bits
	}
	plane, shift := weight/8, uint64(weight%8)
	for half := range 2 {
		var words [3][2]VecVirtual // of p, q, n: rows 0-7 and 16-23, 8-15 and 24-31
		for i := range words {
			at := acc.Offset((2*i + half) * 2 * vec)
			lower, upper, t := load(at), load(at.Offset(vec)), YMM()
			VPSLLW(Imm(8), upper, t)
			VPSUBW(t, lower, lower)
			words[i] = [2]VecVirtual{YMM(), YMM()}
			VPUNPCKLWD(upper, lower, words[i][0])
			VPUNPCKHWD(upper, lower, words[i][1])
		}
		for eights := range 4 {
			var wide [3]VecVirtual
			for i := range wide {
				wide[i] = YMM()
				src := words[i][eights%2]
				if eights < 2 {
					VPMOVZXWD(src.AsX(), wide[i])
				} else {
					VEXTRACTI128(Imm(1), src, wide[i].AsX())
					VPMOVZXWD(wide[i].AsX(), wide[i])
				}
			}
			for kind := range 2 {
				v := wide[kind]
				VPADDD(v, v, v)
				VPADDD(wide[2], v, v)
				if shift > 0 {
					VPSLLD(Imm(shift), v, v)
				}
				at := sums.Offset(((kind*k.planes+plane)*tabRows + half*32 + eights*8) * 4)
				VPADDD(at, v, v)
				VMOVDQU(v, at)
			}
		}
	}
}

// tables is [linear].form: [blocks][8][digit][16] from digits [blocks][P][32]. Entry
// i is the sum of those of four activations whose bit is set in i.
func (k tabled) tables() {
	TEXT(k.name("tables"), NOSPLIT, "func(tables, x *int8, blocks int)")
	dst := Load(Param("tables"), GP64())
	x := Load(Param("x"), GP64())
	blocks := Load(Param("blocks"), GP64())
	start := load(constant(fmt.Sprintf("tableBias%d", k.planes), k.bias()))
	// A vector has sums 0-3 and 8-11; with column 2, they are 4-7 and 12-15.
	with := map[int]VecVirtual{0: load(column0), 1: load(column1), 3: load(column3)}
	order := load(byDigit)
	mask := make([]Mem, len(k.widths))
	for d, bits := range k.widths {
		mask[d] = constant(fmt.Sprintf("digit%dOf%d", d, k.planes), (1<<bits-1)<<(8*d))
	}

	Label("block")
	for eight := range blockCols / 8 {
		var q VecVirtual // eight activations
		for p := k.planes - 1; p >= 0; p-- {
			d := YMM()
			VPMOVSXBD(Mem{Base: x, Disp: p*blockCols + eight*8}, d)
			if q != nil {
				VPSLLD(Imm(8), q, q)
				VPADDD(q, d, d)
			}
			q = d
		}
		for four := range 2 {
			lane := YMM() // four activations, twice
			VPERMQ(Imm([]uint64{0x44, 0xee}[four]), q, lane)
			sum, sum2, t := YMM(), YMM(), YMM()
			VPSHUFD(Imm(0), lane, sum)
			VPAND(with[0], sum, sum)
			VPADDD(start, sum, sum)
			for _, c := range []int{1, 3} {
				VPSHUFD(Imm(uint64(c*0x55)), lane, t)
				VPAND(with[c], t, t)
				VPADDD(t, sum, sum)
			}
			VPSHUFD(Imm(2*0x55), lane, sum2)
			VPADDD(sum, sum2, sum2)
			for _, v := range []VecVirtual{sum, sum2} {
				k.digits(v, mask)
				VPSHUFB(order, v, v) // in a lane, four sums of each digit
			}
			for d := 0; d < len(k.widths); d += 2 {
				unpack := VPUNPCKLDQ
				if d > 0 {
					unpack = VPUNPCKHDQ
				}
				unpack(sum2, sum, t)
				VPERMQ(Imm(0xd8), t, t)
				to := Mem{Base: dst, Disp: ((2*eight+four)*len(k.widths) + d) * table}
				if d+1 < len(k.widths) {
					VMOVDQU(t, to)
				} else {
					VMOVDQU(t.AsX(), to)
				}
			}
		}
	}
	ADDQ(U32(uint32(k.tableBlock())), dst)
	ADDQ(U32(uint32(k.planes*blockCols)), x)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// digits makes the digits in every dword of v bytes.
func (k tabled) digits(v VecVirtual, mask []Mem) {
	all := YMM()
	VPAND(mask[0], v, all)
	for d := 1; d < len(k.widths); d++ {
		t := YMM()
		VPSLLD(Imm(uint64(8-k.widths[d-1])), v, v)
		VPAND(mask[d], v, t)
		VPOR(t, all, all)
	}
	VMOVDQA(all, v)
}
