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
// of a digit: two of 7 bits, four of 6, eight of 5 or 4.
const (
	tabRows   = 64                    // R
	table     = 16                    // bytes: a digit of the sums of four columns
	fours     = blockCols / 4         // tables of a digit in a block
	group     = 3 * tabRows           // bytes of 8 columns: bits p, q and n, a byte a row
	vectors   = group / vec           // [p, q, n][half of the rows]
	bitsBlock = blockCols / 8 * group // of 32 columns
	nibbles   = 2 * bitsBlock         // a block with four columns a byte
	segment   = 8                     // blocks whose weights and tables stay in the first-level cache
	maxTables = 64                    // blocks that 16 bits can sum: 64 * 4 * 2*127 = 65024
	digitSums = vectors * 2 * vec     // bytes of the 16-bit sums of a digit, [vectors][all, high]

	// Later weights are fetched a quarter of each of the four segments that come next,
	// so that four pages are read at once: see int8Dot.
	later = 3 * segment * bitsBlock / 4
)

// tabled is the linear for activations of so many planes.
type tabled struct {
	planes int
	widths []int // bits of the digits of a sum of four activations, lowest first
}

// Sums of four activations, less the least of them, go up to 4 times the largest
// activation, 127, 0x7f7f or 0x7f7f7f: 9, 17 or 25 bits.
var tableds = []tabled{{1, []int{5, 4}}, {2, []int{6, 6, 5}}, {3, []int{7, 6, 6, 6}}}

func (k tabled) tableBlock() int { return fours * len(k.widths) * table } // bytes of 32 columns: [4 columns][digit][sum]
func (k tabled) sums16() int     { return len(k.widths) * digitSums }     // bytes of a column's 16-bit sums
func (k tabled) sums32() int     { return 2 * k.planes * tabRows * 4 }    // and of its 32-bit ones

func (k tabled) name(s string) string { return fmt.Sprintf("%s%dAVX2", s, k.planes) }

// lookUp is [linear].dot on w [blocks][4][p, q, n][64] (see arrangeBits in package cpu)
// and tables [blocks][8][digit][16].
//
// Through a segment of blocks it takes one vector of 32 rows after the other, all
// digits at once: bits are taken apart once, and never leave the registers.
func (k tabled) lookUp() {
	TEXT(k.name("lookUp"), 0, "func(sums *int32, w *byte, tables *int8, blocks int)")
	frame := AllocLocal(k.sums16() + vec)
	acc := GP64()
	LEAQ(frame.Offset(vec-1), acc)
	ANDQ(I8(-vec), acc)
	sums := Load(Param("sums"), GP64())
	w := Load(Param("w"), GP64())
	tables := Load(Param("tables"), GP64())
	blocks := Load(Param("blocks"), GP64())
	zero(sums, k.sums32())

	Label("chunk")
	zero(acc, k.sums16())
	left := take(blocks, maxTables)

	Label("segment")
	n, v, sum, next := take(left, segment), GP64(), GP64(), GP64()
	MOVL(U32(vectors), v.As32())
	MOVQ(acc, sum)
	LEAQ(Mem{Base: w, Disp: segment*bitsBlock + later}, next)
	Label("vector")
	bits, index := YMM(), YMM()
	u := k.add("block", k.digits(), 0, 1, sum, tables, n, w, bitsBlock, func(u Register, four int) []Op {
		if four%2 == 0 {
			VMOVDQU(Mem{Base: u, Disp: four / 2 * group}, bits)
			VPAND(nibble, bits, index)
			return []Op{index}
		}
		PREFETCHT0(Mem{Base: next, Disp: four / 2 * later})
		VPSRLW(Imm(4), bits, bits)
		VPAND(nibble, bits, bits)
		return []Op{bits}
	}, func() { ADDQ(U32(segment*bitsBlock/4/(vectors*segment)), next) })
	ADDQ(U32(vec), w)
	ADDQ(U32(2*vec), sum)
	DECQ(v)
	JNZ(LabelRef("vector"))

	LEAQ(Mem{Base: u, Disp: vec - group}, w)
	IMUL3Q(U32(uint32(k.tableBlock())), n, n)
	ADDQ(n, tables)
	TESTQ(left, left)
	JNZ(LabelRef("segment"))

	k.flush(acc, sums)
	TESTQ(blocks, blocks)
	JNZ(LabelRef("chunk"))
	VZEROUPPER()
	RET()
}

// lookUpMany is [linear].many: it writes sums [columns][2][P][64]; the tables of a
// column begin stride bytes behind those of the one before. scratch has a segment of
// nibbles and 16-bit sums for each column, which wait there until they are full.
//
// A segment of blocks is split into nibbles once for all columns. Half of the vectors,
// as many as registers allow, share the tables of a digit.
func (k tabled) lookUpMany() {
	TEXT(k.name("lookUpMany"), NOSPLIT, "func(sums *int32, w *byte, tables *int8, blocks, columns, stride int, scratch *byte)")
	w := Load(Param("w"), GP64())
	tables := Load(Param("tables"), GP64())
	blocks := Load(Param("blocks"), GP64())
	u := Load(Param("scratch"), GP64())
	each := func(label string, do, next func()) {
		c := Load(Param("columns"), GP64())
		Label(label)
		do()
		next()
		DECQ(c)
		JNZ(LabelRef(label))
	}
	nextSums := func(acc, sums Register) func() {
		return func() {
			if acc != nil {
				ADDQ(U32(uint32(k.sums16())), acc)
			}
			if sums != nil {
				ADDQ(U32(uint32(k.sums32())), sums)
			}
		}
	}
	sums := Load(Param("sums"), GP64())
	each("start", func() { zero(sums, k.sums32()) }, nextSums(nil, sums))

	Label("chunk")
	acc := GP64()
	LEAQ(Mem{Base: u, Disp: segment * nibbles}, acc)
	each("clear", func() { zero(acc, k.sums16()) }, nextSums(acc, nil))
	left := take(blocks, maxTables)

	Label("segment")
	n := take(left, segment)
	split(w, u, n)
	acc, t := GP64(), GP64()
	LEAQ(Mem{Base: u, Disp: segment * nibbles}, acc)
	MOVQ(tables, t)
	each("column", func() {
		// Each column fetches the next segment, as there may be few. The others find it.
		next, lines := GP64(), (bitsBlock/64+2*len(k.widths)-1)/(2*len(k.widths))
		MOVQ(w, next)
		for d := range k.widths {
			for first := 0; first < vectors; first += vectors / 2 {
				label := fmt.Sprintf("digit%dFrom%d", d, first)
				k.add(label, []int{d}, first, vectors/2, acc, t, n, u, nibbles, func(u Register, four int) []Op {
					index := make([]Op, vectors/2)
					for i := range index {
						index[i] = Mem{Base: u, Disp: four*group + (first+i)*vec}
					}
					return index
				}, func() {
					for i := range lines {
						PREFETCHT0(Mem{Base: next, Disp: i * 64})
					}
					ADDQ(U32(uint32(lines*64)), next)
				})
			}
		}
	}, func() {
		ADDQ(param("stride"), t)
		nextSums(acc, nil)()
	})
	IMUL3Q(U32(uint32(k.tableBlock())), n, n)
	ADDQ(n, tables)
	TESTQ(left, left)
	JNZ(LabelRef("segment"))

	LEAQ(Mem{Base: u, Disp: segment * nibbles}, acc)
	sums = Load(Param("sums"), GP64())
	each("flush", func() { k.flush(acc, sums) }, nextSums(acc, sums))
	TESTQ(blocks, blocks)
	JNZ(LabelRef("chunk"))
	VZEROUPPER()
	RET()
}

// digits are the indices of all.
func (k tabled) digits() (all []int) {
	for d := range k.widths {
		all = append(all, d)
	}
	return all
}

// zero clears n bytes.
func zero(at Register, n int) {
	v := zeros(1)[0]
	for i := range n / vec {
		VMOVDQU(v, Mem{Base: at, Disp: i * vec})
	}
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
	for i := range vectors {
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

// add adds the products of those digits, for some vectors of rows from the first on, in
// n blocks of size bytes from w on to their 16-bit sums, and returns where those blocks
// end. index gives the indices of four columns, a vector of each, and step comes once a
// block.
func (k tabled) add(label string, digits []int, first, some int, sums, tables, n, w Register, size int, index func(u Register, four int) []Op, step func()) Register {
	type sum struct{ all, high, bytes VecVirtual }
	s := make([][]sum, len(digits))
	at := func(i, v int) Mem { return Mem{Base: sums, Disp: digits[i]*digitSums + (first+v)*2*vec} }
	for i := range s {
		for v := range some {
			s[i] = append(s[i], sum{load(at(i, v)), load(at(i, v).Offset(vec)), YMM()})
		}
	}
	u, t, left := GP64(), GP64(), GP64()
	MOVQ(w, u)
	MOVQ(tables, t)
	MOVQ(n, left)

	Label(label)
	for four := range fours {
		index := index(u, four)
		for i, d := range digits {
			together := 1 << (8 - k.widths[d])
			entries := YMM()
			VBROADCASTI128(Mem{Base: t, Disp: (four*len(k.widths) + d) * table}, entries)
			for v, s := range s[i] {
				if four%together == 0 {
					VPSHUFB(index[v], entries, s.bytes)
				} else {
					looked := YMM()
					VPSHUFB(index[v], entries, looked)
					VPADDB(looked, s.bytes, s.bytes)
				}
				if (four+1)%together == 0 || four == fours-1 {
					// Bytes are added as parts of 16 bits: of a word's two rows, the sum of the upper
					// one is had by itself, that of both together modulo 2^16.
					VPADDW(s.bytes, s.all, s.all)
					VPSRLW(Imm(8), s.bytes, s.bytes)
					VPADDW(s.bytes, s.high, s.high)
				}
			}
		}
	}
	step()
	ADDQ(U32(uint32(size)), u)
	ADDQ(U32(uint32(k.tableBlock())), t)
	DECQ(left)
	JNZ(LabelRef(label))

	for i := range s {
		for v, s := range s[i] {
			VMOVDQU(s.all, at(i, v))
			VMOVDQU(s.high, at(i, v).Offset(vec))
		}
	}
	return u
}

// flush adds the 16-bit sums, 2p+n and 2q+n, to the 32-bit ones. A digit counts
// 2^weight, which is a multiple of 256^plane.
func (k tabled) flush(acc, sums Register) {
	weight := 0
	for d, bits := range k.widths {
		k.flushDigit(Mem{Base: acc, Disp: d * digitSums}, Mem{Base: sums}, weight/8, uint64(weight%8))
		weight += bits
	}
}

func (k tabled) flushDigit(acc, sums Mem, plane int, shift uint64) {
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
// i is the sum of those of four activations whose bit is set in i, less the least of
// the 16 sums, which are the negative activations: that makes a sum over p twice and
// n once too large by three times all of those.
func (k tabled) tables() {
	TEXT(k.name("tables"), NOSPLIT, "func(tables, x *int8, blocks int) (more int64)")
	dst := Load(Param("tables"), GP64())
	x := Load(Param("x"), GP64())
	blocks := Load(Param("blocks"), GP64())
	none, negative := zeros(1)[0], zeros(1)[0]
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
		least, wide := YMM(), YMM() // of the sums of each half, negated
		VPSUBD(q, none, least)
		VPMAXSD(none, least, least)
		for _, order := range []uint64{0x4e, 0xb1} {
			VPSHUFD(Imm(order), least, wide)
			VPADDD(wide, least, least)
		}
		VPSRLQ(Imm(32), least, wide)
		VPADDQ(wide, negative, negative)
		for four := range 2 {
			lane, start := YMM(), YMM() // four activations, twice
			VPERMQ(Imm([]uint64{0x44, 0xee}[four]), q, lane)
			VPERMQ(Imm([]uint64{0x44, 0xee}[four]), least, start)
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
				k.cut(v, mask)
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

	upper, more := XMM(), GP64()
	VEXTRACTI128(Imm(1), negative, upper)
	VPADDQ(negative.AsX(), upper, upper)
	VMOVQ(upper, more)
	LEAQ(Mem{Base: more, Index: more, Scale: 2}, more)
	Store(more, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// cut makes the digits in every dword of v bytes.
func (k tabled) cut(v VecVirtual, mask []Mem) {
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
