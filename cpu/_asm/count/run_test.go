package main

import (
	"strings"
	"testing"
)

const loops = `
// func f(n, m int)
TEXT ·f(SB), NOSPLIT, $0-16
	MOVQ n+0(FP), AX

outer:
	MOVQ    m+8(FP), CX
	MOVL    $0x00000002, DX
	CMPQ    CX, DX
	CMOVQLT CX, DX
	SHLQ    $0x01, DX

inner:
	LONG $0x5075e2c4; BYTE $0x50; BYTE $0x20 // {vex} vpdpbusd 32(%rax), %ymm1, %ymm2
	SUBQ $0x01, DX
	JGE  inner
	DECQ AX
	JNZ  outer
	RET
`

func TestRun(t *testing.T) {
	functions := map[string]*function{}
	parse(loops+"\nTEXT ·g(SB), NOSPLIT, $0-0\n\tBSFQ AX, CX\n\tRET\n", functions)
	for _, c := range []struct{ n, m, want int }{
		{1, 1, 1 + 5 + 3*3 + 2 + 1}, // DX is 2 and goes down to -1
		{1, 9, 1 + 5 + 5*3 + 2 + 1},
		{7, 9, 1 + 7*(5+5*3+2) + 1},
	} {
		if n, err := functions["f"].run(args{"n": c.n, "m": c.m}); n != c.want || err != nil {
			t.Errorf("n %d, m %d: %d, %v, want %d", c.n, c.m, n, err, c.want)
		}
	}
	if _, err := functions["g"].run(nil); err == nil || !strings.Contains(err.Error(), "BSFQ AX, CX") {
		t.Errorf("an instruction that is not known: %v", err)
	}
}
