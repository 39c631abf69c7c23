package main

import "fmt"

// The vector instructions that Go's assembler has, destination first here too.

func (a *asm) same(name, lanes string, d, n, m v) {
	a.op("%s %v.%s, %v.%s, %v.%s", name, m, lanes, n, lanes, d, lanes)
}

func (a *asm) and(d, n, m v)      { a.same("VAND", "B16", d, n, m) }
func (a *asm) eor(d, n, m v)      { a.same("VEOR", "B16", d, n, m) }
func (a *asm) addBytes(d, n, m v) { a.same("VADD", "B16", d, n, m) }
func (a *asm) add(d, n, m v)      { a.same("VADD", "S4", d, n, m) }
func (a *asm) sub(d, n, m v)      { a.same("VSUB", "S4", d, n, m) }
func (a *asm) addLong(d, n, m v)  { a.same("VADD", "D2", d, n, m) }
func (a *asm) subLong(d, n, m v)  { a.same("VSUB", "D2", d, n, m) }
func (a *asm) umax(d, n, m v)     { a.same("VUMAX", "S4", d, n, m) }

// addp adds neighbours: those of n, then those of m.
func (a *asm) addp(d, n, m v) { a.same("VADDP", "S4", d, n, m) }

// bit sets the bits of d that are 1 in m to those of n.
func (a *asm) bit(d, n, m v) { a.same("VBIT", "B16", d, n, m) }

// zip1 and zip2 interleave the lower and the upper halves of n and m; uzp1 and
// uzp2 gather their even and their odd lanes.
func (a *asm) zip1(lanes string, d, n, m v) { a.same("VZIP1", lanes, d, n, m) }
func (a *asm) zip2(lanes string, d, n, m v) { a.same("VZIP2", lanes, d, n, m) }
func (a *asm) uzp1(lanes string, d, n, m v) { a.same("VUZP1", lanes, d, n, m) }
func (a *asm) uzp2(lanes string, d, n, m v) { a.same("VUZP2", lanes, d, n, m) }

func (a *asm) ushrBytes(d, n v, by int) { a.op("VUSHR $%d, %v.B16, %v.B16", by, n, d) }
func (a *asm) shl(d, n v, by int)       { a.op("VSHL $%d, %v.S4, %v.S4", by, n, d) }
func (a *asm) shlLong(d, n v, by int)   { a.op("VSHL $%d, %v.D2, %v.D2", by, n, d) }

// dup sets all lanes of d to lane i of n.
func (a *asm) dup(d, n v, i int) { a.op("VDUP %v.S[%d], %v.S4", n, i, d) }

// bytes sets every byte of d.
func (a *asm) bytes(d v, value byte) { a.op("VMOVI $%d, %v.B16", value, d) }

func (a *asm) zero(list ...v) {
	for _, d := range list {
		a.bytes(d, 0)
	}
}

// load, store and their pairs move 16 or 32 bytes at offset from base.

func (a *asm) load(d v, base r, offset int)  { a.op("FMOVQ %s, F%d", place(base, offset), d) }
func (a *asm) store(d v, base r, offset int) { a.op("FMOVQ F%d, %s", d, place(base, offset)) }
func (a *asm) loadPair(d, e v, base r, offset int) {
	a.op("FLDPQ %s, (F%d, F%d)", place(base, offset), d, e)
}
func (a *asm) storePair(d, e v, base r, offset int) {
	a.op("FSTPQ (F%d, F%d), %s", d, e, place(base, offset))
}

// loadAll and storeAll move registers in pairs, from offset on.
func (a *asm) loadAll(list []v, base r, offset int) {
	for i := 0; i+1 < len(list); i += 2 {
		a.loadPair(list[i], list[i+1], base, offset+16*i)
	}
	if n := len(list) - 1; n%2 == 0 {
		a.load(list[n], base, offset+16*n)
	}
}

func (a *asm) storeAll(list []v, base r, offset int) {
	for i := 0; i+1 < len(list); i += 2 {
		a.storePair(list[i], list[i+1], base, offset+16*i)
	}
	if n := len(list) - 1; n%2 == 0 {
		a.store(list[n], base, offset+16*n)
	}
}

// place is a place in memory as Go's assembler writes it.
func place(base r, offset int) string {
	if offset == 0 {
		return fmt.Sprintf("(%v)", base)
	}
	return fmt.Sprintf("%d(%v)", offset, base)
}

// argument loads a parameter; offset is its place in the frame.
func (a *asm) argument(name string, offset int, d r) { a.op("MOVD %s+%d(FP), %v", name, offset, d) }

// floatArgument loads a float32 into all lanes.
func (a *asm) floatArgument(name string, offset int, d v) {
	a.op("FMOVS %s+%d(FP), F%d", name, offset, d)
	a.dup(d, d, 0)
}

func (a *asm) addTo(d, x r)            { a.op("ADD %v, %v", x, d) }
func (a *asm) addImmediate(d r, n int) { a.op("ADD $%d, %v", n, d) }

// next counts d down and goes to label while anything is left.
func (a *asm) next(d r, label string) {
	a.op("SUBS $1, %v", d)
	a.op("BNE %s", label)
}
