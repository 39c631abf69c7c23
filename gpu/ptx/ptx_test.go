package ptx

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"npack/gpu"
)

// text is a kernel of one warp, or of two, around a body. Its parameter is a buffer;
// %rd2 is the thread's place in it and %r1 the thread.
func text(threads int, body string) string {
	return fmt.Sprintf(`.version 6.0
.target sm_70
.address_size 64
.visible .entry k(
	.param .u64 k_param_0
)
.maxntid %d, 1, 1
{
	.reg .pred %%p<4>;
	.reg .b32 %%r<9>;
	.reg .f32 %%f<9>;
	.reg .b64 %%rd<9>;
	.shared .align 4 .b8 s[256];
	mov.u32 %%r1, %%tid.x;
	ld.param.u64 %%rd1, [k_param_0];
	cvta.to.global.u64 %%rd1, %%rd1;
	mul.wide.u32 %%rd2, %%r1, 4;
	mov.u64 %%rd3, s;
	add.s64 %%rd3, %%rd3, %%rd2;
	add.s64 %%rd2, %%rd1, %%rd2;
%s
	ret;
}
`, threads, body)
}

// launch runs a text's kernel on a buffer of 64 words, thread i's being i.
func launch(t *testing.T, text string, blocks int) (d *Device, words []uint32, err error) {
	t.Helper()
	if d, err = Load(text); err != nil {
		return nil, nil, err
	}
	b, err := d.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 256)
	for i := range 64 {
		binary.LittleEndian.PutUint32(p[4*i:], uint32(i))
	}
	if err := d.Upload(b, 0, p); err != nil {
		t.Fatal(err)
	}
	if err := d.Launch(&gpu.Launch{Kernel: "k", Grid: [3]uint32{uint32(blocks), 1, 1}, Args: []gpu.Arg{{Buf: b}}}); err != nil {
		return d, nil, err
	}
	if err := d.Download(p, b, 0); err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		words = append(words, binary.LittleEndian.Uint32(p[4*i:]))
	}
	return d, words, nil
}

// TestRefuses has a kernel for each thing that a card would not say.
func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		threads int
		blocks  int
		body    string
		want    string // part of the error; "" if there is none
	}{
		{"nothing wrong", 64, 1, "st.shared.u32 [%rd3], %r1; bar.sync 0; xor.b32 %r2, %r1, 63; mul.wide.u32 %rd4, %r2, 4; mov.u64 %rd5, s; add.s64 %rd4, %rd4, %rd5; ld.shared.u32 %r3, [%rd4]; st.global.u32 [%rd2], %r3;", ""},
		{"race in shared memory", 64, 1, "st.shared.u32 [%rd3], %r1; xor.b32 %r2, %r1, 1; mul.wide.u32 %rd4, %r2, 4; mov.u64 %rd5, s; add.s64 %rd4, %rd4, %rd5; ld.shared.u32 %r3, [%rd4];", "race: read of what another thread writes"},
		{"race in global memory", 64, 1, "st.global.u32 [%rd1], %r1;", "race: store to what another thread writes"},
		{"race after a read", 64, 1, "ld.global.u32 %r2, [%rd1]; st.global.u32 [%rd1+4], %r1;", "another thread writes"},
		{"store to what others read", 64, 1, "ld.global.u32 %r2, [%rd1]; setp.eq.s32 %p1, %r1, 5; @%p1 st.global.u32 [%rd1], %r2;", "race: store to what another thread reads"},
		{"ordered by a barrier", 64, 1, "ld.global.u32 %r2, [%rd1]; bar.sync 0; setp.eq.s32 %p1, %r1, 5; @%p1 st.global.u32 [%rd1], %r2;", ""},
		{"race between blocks", 32, 2, "st.global.u32 [%rd2], %r1;", "race: store to what another block writes"},
		{"read of another block's word", 32, 2, "mov.u32 %r2, %ctaid.x; setp.eq.s32 %p1, %r2, 1; @%p1 ld.global.u32 %r3, [%rd2]; @!%p1 st.global.u32 [%rd2], %r1;", "race: read of what another block writes"},
		{"store to another block's word", 32, 2, "mov.u32 %r2, %ctaid.x; setp.eq.s32 %p1, %r2, 0; @%p1 ld.global.u32 %r3, [%rd2]; @!%p1 st.global.u32 [%rd2], %r1;", "race: store to what another block reads"},
		{"atomic among all", 64, 2, "red.global.max.u32 [%rd1], %r1;", ""},
		{"atomic and a store", 64, 1, "red.global.max.u32 [%rd1], %r1; setp.eq.s32 %p1, %r1, 0; @%p1 st.global.u32 [%rd1], %r1;", "race: store and atomic change"},
		{"atomic and a read", 64, 1, "red.global.max.u32 [%rd1], %r1; ld.global.u32 %r2, [%rd1];", "atomically"},
		{"constant memory written", 64, 1, "ld.global.nc.u32 %r2, [%rd2]; st.global.u32 [%rd2], %r2;", "reads by ld.global.nc"},
		{"written memory as constant", 64, 1, "st.global.u32 [%rd2], %r1; ld.global.nc.u32 %r2, [%rd2];", "ld.global.nc of memory that this launch writes"},
		{"past the end", 64, 1, "st.global.u32 [%rd2+4], %r1;", "is in no buffer: 256 bytes behind the start of one of 256"},
		{"before the start", 32, 1, "ld.global.u32 %r2, [%rd2+-4];", "is in no buffer"},
		{"past shared memory", 64, 1, "st.shared.u32 [%rd3+4], %r1;", "of shared memory"},
		{"between words", 64, 1, "ld.global.u32 %r2, [%rd2+2];", "not a multiple of 4"},
		{"nothing written", 64, 1, "ld.shared.u32 %r2, [%rd3];", "nothing was written"},
		{"written by the block before", 32, 2, "mov.u32 %r2, %ctaid.x; setp.eq.s32 %p1, %r2, 0; @%p1 st.shared.u32 [%rd3], %r1; bar.sync 0; ld.shared.u32 %r3, [%rd3];", "block 1, thread 0"},
		{"barrier in a branch", 64, 1, "setp.gt.u32 %p1, %r1, 7; @%p1 bra $L; bar.sync 0; $L:", "barrier that not all threads"},
		{"barrier of one warp", 64, 1, "setp.gt.u32 %p1, %r1, 31; @%p1 bra $L; bar.sync 0; $L:", "barrier that not all threads"},
		{"two barriers", 64, 1, "setp.gt.u32 %p1, %r1, 31; @%p1 bra $L; bar.sync 0; bra $M; $L: bar.sync 0; $M:", "barrier that not all threads"},
		{"shuffle in a branch", 32, 1, "setp.gt.u32 %p1, %r1, 7; @%p1 bra $L; shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; $L:", "only lanes 0x000000ff of the warp"},
		{"contractable", 32, 1, "mul.f32 %f1, %f2, %f3;", "not rounded to nearest"},
		{"fused", 32, 1, "fma.rn.f32 %f1, %f2, %f3, %f1;", "unknown, or f32 arithmetic"},
		{"flushed", 32, 1, "add.rn.ftz.f32 %f1, %f2, %f3;", "not rounded to nearest"},
		{"divided", 32, 1, "div.rn.f32 %f1, %f2, %f3;", "unknown, or f32"},
		{"conditional barrier", 32, 1, "@%p1 bar.sync 0;", "without a condition"},
		{"half a warp's shuffle", 32, 1, "shfl.sync.bfly.b32 %r2, %r1, 1, 31, 65535;", "whole warps"},
		{"unknown", 32, 1, "tanh.approx.u32 %r1, %r2;", "unknown instruction"},
		{"no such register", 32, 1, "add.s32 %r77, %r1, %r2;", "no register"},
		{"no such label", 32, 1, "bra $NOWHERE;", "no label"},
		{"no space", 32, 1, "ld.u32 %r2, [%rd1];", "generic address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := launch(t, text(c.threads, c.body), c.blocks)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestDivergence: lanes that take other ways, of other lengths, meet again.
func TestDivergence(t *testing.T) {
	// Thread i adds 1 to i, i%5 times; the odd ones add 100 besides; then all swap with
	// their neighbour.
	_, got, err := launch(t, text(64, `rem.u32 %r2, %r1, 5;
	mov.u32 %r3, %r1;
$LOOP:
	setp.eq.s32 %p1, %r2, 0; @%p1 bra $DONE;
	add.s32 %r3, %r3, 1; sub.s32 %r2, %r2, 1; bra.uni $LOOP;
$ODD:
	add.s32 %r3, %r3, 100; bra.uni $ALL;
$DONE:
	and.b32 %r4, %r1, 1; setp.ne.s32 %p2, %r4, 0; @%p2 bra $ODD;
$ALL:
	shfl.sync.bfly.b32 %r5, %r3, 1, 31, -1;
	st.global.u32 [%rd2], %r5;`), 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		j := uint32(i ^ 1)
		if want := j + j%5 + j%2*100; v != want {
			t.Errorf("thread %d has %d, want %d", i, v, want)
		}
	}
}

// TestSubnormals: they are counted, and flushed where that is asked for.
func TestSubnormals(t *testing.T) {
	body := fmt.Sprintf("mov.f32 %%f1, 0f%08X; mul.rn.f32 %%f2, %%f1, 0f3F000000; st.global.f32 [%%rd2], %%f2;", math.Float32bits(0x1p-126))
	d, got, err := launch(t, text(32, body), 1)
	if err != nil {
		t.Fatal(err)
	}
	if d.Subnormals != 32 || got[0] != math.Float32bits(0x1p-127) {
		t.Errorf("%d subnormals, %#x, want 32, %#x", d.Subnormals, got[0], math.Float32bits(0x1p-127))
	}
	d.Flush = true
	b, err := d.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Launch(&gpu.Launch{Kernel: "k", Grid: [3]uint32{1, 1, 1}, Args: []gpu.Arg{{Buf: b}}}); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 4)
	if err := d.Download(p, b, 0); err != nil || binary.LittleEndian.Uint32(p) != 0 {
		t.Errorf("flushed: % x, %v", p, err)
	}
}

// TestLaunchRefuses: arguments and grids that do not fit.
func TestLaunchRefuses(t *testing.T) {
	d, err := Load(text(32, ""))
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	one := [3]uint32{1, 1, 1}
	for _, l := range []gpu.Launch{
		{Kernel: "none", Grid: one},
		{Kernel: "k", Grid: one},
		{Kernel: "k", Grid: one, Args: []gpu.Arg{{Val: 7}}},
		{Kernel: "k", Grid: [3]uint32{1, 0, 1}, Args: []gpu.Arg{{Buf: b}}},
	} {
		if err := d.Launch(&l); err == nil {
			t.Errorf("%+v was run", l)
		}
	}
	if err := d.Upload(b, 250, make([]byte, 7)); err == nil {
		t.Error("7 bytes went to the last 6")
	}
	d.Free(b)
	if err := d.Download(make([]byte, 1), b, 0); err == nil {
		t.Error("a buffer that was given back was read")
	}
}

// TestOperations compares integer instructions with what the PTX manual says of them.
func TestOperations(t *testing.T) {
	for _, c := range []struct {
		code string
		want uint32
	}{
		{"mov.b32 %r2, -1; shr.s32 %r3, %r2, 40;", math.MaxUint32},
		{"mov.b32 %r2, -1; shr.u32 %r3, %r2, 40;", 0},
		{"mov.b32 %r2, 305419896; shf.r.wrap.b32 %r3, %r2, %r2, 36;", 0x81234567},
		{"mov.b32 %r2, 305419896; mov.b32 %r4, 16711936; prmt.b32 %r3, %r2, %r4, 22288;", 0x01005678},
		{"mov.b32 %r2, -1; mul.hi.u32 %r3, %r2, %r2;", 0xfffffffe},
		{"mov.b32 %r2, -2; mul.hi.s32 %r3, %r2, 3;", math.MaxUint32},
		{"mov.b32 %r2, 2155905152; bfe.s32 %r3, %r2, 4, 4;", 0xfffffff8},
		{"mov.b32 %r2, 2155905152; bfe.u32 %r3, %r2, 4, 4;", 8},
		{"mov.b32 %r2, -7; mov.b32 %r4, 3; min.s32 %r3, %r2, %r4;", 0xfffffff9},
		{"mov.b32 %r2, -7; mov.b32 %r4, 3; min.u32 %r3, %r2, %r4;", 3},
		{"mov.b32 %r2, 2139062143; mov.b32 %r4, 25264385; dp4a.s32.s32 %r3, %r2, %r4, 5;", 0xffff8301},
		{"mov.f32 %f1, 0f40200000; cvt.rni.s32.f32 %r3, %f1;", 2},
		{"mov.f32 %f1, 0f40600000; cvt.rni.s32.f32 %r3, %f1;", 4},
		{"mov.f32 %f1, 0f7FC00000; cvt.rni.s32.f32 %r3, %f1;", 0},
		{"mov.f32 %f1, 0f7F800000; cvt.rni.s32.f32 %r3, %f1;", math.MaxInt32},
	} {
		_, got, err := launch(t, text(32, c.code+" st.global.u32 [%rd2], %r3;"), 1)
		if err != nil {
			t.Errorf("%s: %v", c.code, err)
		} else if got[0] != c.want {
			t.Errorf("%s gives %#x, want %#x", c.code, got[0], c.want)
		}
	}
}
