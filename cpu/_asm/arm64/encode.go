package main

// The instructions that Go's assembler lacks, destination first, as in Arm's
// manual (DDI 0487). Lanes are in the name or the comment, as far as one
// instruction is used with several.

func (a *asm) two(bits uint32, text string, d, n v) {
	a.encoded(bits|uint32(n)<<5|uint32(d), text, uint32(d), uint32(n))
}

func (a *asm) three(bits uint32, text string, d, n, m v) {
	a.encoded(bits|uint32(m)<<16|uint32(n)<<5|uint32(d), text, uint32(d), uint32(n), uint32(m))
}

// element is three with lane i, of 32 bits, of m.
func (a *asm) element(bits uint32, text string, d, n, m v, i int) {
	a.encoded(bits|uint32(i&1)<<21|uint32(i>>1)<<11|uint32(m)<<16|uint32(n)<<5|uint32(d), text, uint32(d), uint32(n), uint32(m), i)
}

// shift is two with a number of bits, which the instruction holds as immediate.
func (a *asm) shift(bits uint32, text string, d, n v, immediate, by int) {
	a.encoded(bits|uint32(immediate)<<16|uint32(n)<<5|uint32(d), text, uint32(d), uint32(n), by)
}

// Bytes.

// sdot adds to each d.4s the four products of its bytes of n and m.
func (a *asm) sdot(d, n, m v) { a.three(0x4e809400, "sdot v%d.4s, v%d.16b, v%d.16b", d, n, m) }

// sdotAt is sdot with the four bytes of lane i of m for all lanes.
func (a *asm) sdotAt(d, n, m v, i int) {
	a.element(0x4f80e000, "sdot v%d.4s, v%d.16b, v%d.4b[%d]", d, n, m, i)
}

// smmla adds to d [2][2] int32 the products of the rows of n [2][8] with those
// of m [2][8].
func (a *asm) smmla(d, n, m v) { a.three(0x4e80a400, "smmla v%d.4s, v%d.16b, v%d.16b", d, n, m) }

func (a *asm) smull(d, n, m v)  { a.three(0x0e20c000, "smull v%d.8h, v%d.8b, v%d.8b", d, n, m) }
func (a *asm) smull2(d, n, m v) { a.three(0x4e20c000, "smull2 v%d.8h, v%d.16b, v%d.16b", d, n, m) }
func (a *asm) smlal(d, n, m v)  { a.three(0x0e208000, "smlal v%d.8h, v%d.8b, v%d.8b", d, n, m) }
func (a *asm) smlal2(d, n, m v) { a.three(0x4e208000, "smlal2 v%d.8h, v%d.16b, v%d.16b", d, n, m) }

// Sums of neighbours, into lanes twice as wide.

func (a *asm) saddlp(d, n v)     { a.two(0x4e602800, "saddlp v%d.4s, v%d.8h", d, n) }
func (a *asm) sadalp(d, n v)     { a.two(0x4e606800, "sadalp v%d.4s, v%d.8h", d, n) }
func (a *asm) sadalpLong(d, n v) { a.two(0x4ea06800, "sadalp v%d.2d, v%d.4s", d, n) }
func (a *asm) saddlv(d, n v)     { a.two(0x4eb03800, "saddlv d%d, v%d.4s", d, n) }

// Shifts to the right are arithmetic.

func (a *asm) ssra(d, n v, by int) {
	a.shift(0x4f001400, "ssra v%d.4s, v%d.4s, #%d", d, n, 64-by, by)
}
func (a *asm) sshr(d, n v, by int) {
	a.shift(0x4f000400, "sshr v%d.4s, v%d.4s, #%d", d, n, 64-by, by)
}
func (a *asm) sshrLong(d, n v, by int) {
	a.shift(0x4f000400, "sshr v%d.2d, v%d.2d, #%d", d, n, 128-by, by)
}

// Sign extension: sxtl of the lower half of n, sxtl2 of the upper.

func (a *asm) sxtlBytes(d, n v)  { a.two(0x0f08a400, "sxtl v%d.8h, v%d.8b", d, n) }
func (a *asm) sxtl2Bytes(d, n v) { a.two(0x4f08a400, "sxtl2 v%d.8h, v%d.16b", d, n) }
func (a *asm) sxtlHalfs(d, n v)  { a.two(0x0f10a400, "sxtl v%d.4s, v%d.4h", d, n) }
func (a *asm) sxtl2Halfs(d, n v) { a.two(0x4f10a400, "sxtl2 v%d.4s, v%d.8h", d, n) }
func (a *asm) sxtlWords(d, n v)  { a.two(0x0f20a400, "sxtl v%d.2d, v%d.2s", d, n) }
func (a *asm) sxtl2Words(d, n v) { a.two(0x4f20a400, "sxtl2 v%d.2d, v%d.4s", d, n) }

// bic sets d = n &^ m.
func (a *asm) bic(d, n, m v) { a.three(0x4e601c00, "bic v%d.16b, v%d.16b, v%d.16b", d, n, m) }

// umaxv sets d to the largest lane of n.
func (a *asm) umaxv(d, n v) { a.two(0x6eb0a800, "umaxv s%d, v%d.4s", d, n) }

// Floats, .4s. There is no fmla: NUMERICS.md rounds each product.

func (a *asm) fadd(d, n, m v) { a.three(0x4e20d400, "fadd v%d.4s, v%d.4s, v%d.4s", d, n, m) }
func (a *asm) fsub(d, n, m v) { a.three(0x4ea0d400, "fsub v%d.4s, v%d.4s, v%d.4s", d, n, m) }
func (a *asm) fmul(d, n, m v) { a.three(0x6e20dc00, "fmul v%d.4s, v%d.4s, v%d.4s", d, n, m) }

// faddp adds neighbours: those of n, then those of m.
func (a *asm) faddp(d, n, m v) { a.three(0x6e20d400, "faddp v%d.4s, v%d.4s, v%d.4s", d, n, m) }

func (a *asm) fabs(d, n v) { a.two(0x4ea0f800, "fabs v%d.4s, v%d.4s", d, n) }
func (a *asm) fneg(d, n v) { a.two(0x6ea0f800, "fneg v%d.4s, v%d.4s", d, n) }

func (a *asm) fmax(d, n, m v) { a.three(0x4e20f400, "fmax v%d.4s, v%d.4s, v%d.4s", d, n, m) }
func (a *asm) fmaxv(d, n v)   { a.two(0x6e30f800, "fmaxv s%d, v%d.4s", d, n) }

// fcmgt sets the lanes to ones where n > m, facgt where |n| > |m|; a NaN is
// neither.
func (a *asm) fcmgt(d, n, m v) { a.three(0x6ea0e400, "fcmgt v%d.4s, v%d.4s, v%d.4s", d, n, m) }
func (a *asm) facgt(d, n, m v) { a.three(0x6ea0ec00, "facgt v%d.4s, v%d.4s, v%d.4s", d, n, m) }

// Conversions. fcvtns rounds halves to even, as all others do where they round.

func (a *asm) fcvtns(d, n v)    { a.two(0x4e21a800, "fcvtns v%d.4s, v%d.4s", d, n) }
func (a *asm) scvtf(d, n v)     { a.two(0x4e21d800, "scvtf v%d.4s, v%d.4s", d, n) }
func (a *asm) scvtfLong(d, n v) { a.two(0x4e61d800, "scvtf v%d.2d, v%d.2d", d, n) }

// From double to single.
func (a *asm) fcvtnDouble(d, n v)  { a.two(0x0e616800, "fcvtn v%d.2s, v%d.2d", d, n) }
func (a *asm) fcvtn2Double(d, n v) { a.two(0x4e616800, "fcvtn2 v%d.4s, v%d.2d", d, n) }

// From single to half and back.
func (a *asm) fcvtn(d, n v)  { a.two(0x0e216800, "fcvtn v%d.4h, v%d.4s", d, n) }
func (a *asm) fcvtn2(d, n v) { a.two(0x4e216800, "fcvtn2 v%d.8h, v%d.4s", d, n) }
func (a *asm) fcvtl(d, n v)  { a.two(0x0e217800, "fcvtl v%d.4s, v%d.4h", d, n) }
func (a *asm) fcvtl2(d, n v) { a.two(0x4e217800, "fcvtl2 v%d.4s, v%d.8h", d, n) }
