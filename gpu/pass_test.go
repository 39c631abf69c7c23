package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"testing"

	"npack/gpu"
	"npack/gpu/gputest"
	"npack/runtime/backend"
	"npack/runtime/backend/backendtest"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

// TestProof: the probe refuses a card of which any kernel gives one wrong bit.
func TestProof(t *testing.T) {
	for _, capability := range []int{70, 89, 100} {
		d := gputest.New(capability)
		if _, err := gpu.New("plain", d, gpu.Options{}); err != nil {
			t.Fatalf("sm_%d: %v", capability, err)
		}
		for kernel := range d.Launches {
			wrong := &flipping{Device: gputest.New(capability), kernel: kernel}
			_, err := gpu.New("plain", wrong, gpu.Options{})
			if !errors.Is(err, gpu.ErrDiffers) {
				t.Errorf("sm_%d: %s gives a wrong bit: %v", capability, kernel, err)
			}
			if kernel == "attn_i8" || kernel == "probe" {
				t.Log(err)
			}
		}
	}
}

// flipping is a card that gets a bit of what one kernel gives wrong.
type flipping struct {
	*gputest.Device
	kernel string
}

// results are the arguments that kernels write, where it is not the sixth.
var results = map[string]int{"embed": 3, "norm_quant": 4, "quant": 3, "head_dot": 4, "head_mma": 4, "attn_f16": 5, "attn_f32": 5, "attn_i8": 5,
	"heads_f16": 6, "heads_f32": 6, "heads_i8": 6, "attn_join": 3, "argmax": 1, "argmax_join": 1, "topk": 2, "probe": 3}

func (d *flipping) Launch(l *gpu.Launch) error {
	if err := d.Device.Launch(l); err != nil || l.Kernel != d.kernel {
		return err
	}
	i, other := results[l.Kernel], 5
	if i == 0 {
		i = other
	}
	a := l.Args[i]
	b := make([]byte, 4)
	if err := d.Download(b, a.Buf, int64(a.Val)); err != nil {
		return err
	}
	b[2] ^= 0x40 // the exponent's last bit, or of a mantissa, or of a digit
	return d.Upload(a.Buf, int64(a.Val), b)
}

// TestLong: more columns than go through the layers together, more wanted ones than
// go through the output embedding together, attention in rounds, a cache that grows:
// all equal to the reference.
func TestLong(t *testing.T) {
	s := ternarytest.All()[0].Spec
	s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.RotaryDims, s.MaxPosition = 1, 24, 24, 4, 4, 2048
	m := ternarytest.Model(s)
	ids := make([]int32, 600)
	for i := range ids {
		ids[i] = int32(i * i % m.Vocab)
	}
	want := backendtest.Reference(t, m, backend.Options{}, ids)
	d := gputest.New(89)
	b := unproven(t, d, 0)
	in, err := b.Load(context.Background(), m, backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	seq, err := in.NewSequence(len(ids))
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, n := range []int{20, 540, 40} {
		r := backend.Run{Seq: seq, Tokens: ids[at : at+n], Logits: make([]float32, n*m.Vocab)}
		for i := range n {
			r.Want = append(r.Want, i)
		}
		if err := in.Forward(context.Background(), []backend.Run{r}); err != nil {
			t.Fatal(err)
		}
		for i, v := range r.Logits {
			if w := want[at*m.Vocab+i]; math.Float32bits(v) != math.Float32bits(w) {
				t.Fatalf("logit %d of token %d is %g, want %g", i%m.Vocab, at+i/m.Vocab, v, w)
			}
		}
		at += n
	}
	if rounds := d.Launches["attn_f16"]; rounds != 5 { // 20; 512 in two rounds and 28; 40
		t.Errorf("attention ran in %d rounds", rounds)
	}
}

// TestRecordings: passes of each size repeat to both sides of a step of the cache,
// before and after it has grown, and each time a recording names what is there.
func TestRecordings(t *testing.T) {
	s := ternarytest.All()[0].Spec
	s.Layers = 1
	m := ternarytest.Model(s)
	ids := make([]int32, 300)
	for i := range ids {
		ids[i] = int32(i * 7 % m.Vocab)
	}
	want := backendtest.Reference(t, m, backend.Options{}, ids)
	d := &gputest.Recorder{Device: gputest.New(89)}
	in, err := unproven(t, d, 0).Load(context.Background(), m, backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// Buffers of the instance are as large as they get: only the cache grows below.
	long, err := in.NewSequence(len(ids))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.Forward(context.Background(), []backend.Run{{Seq: long, Tokens: ids}}), long.Close()); err != nil {
		t.Fatal(err)
	}
	seq, err := in.NewSequence(len(ids))
	if err != nil {
		t.Fatal(err)
	}
	feed := func(to, n int) {
		t.Helper()
		for at := seq.Len(); at < to; at += n {
			r := backend.Run{Seq: seq, Tokens: ids[at : at+n], Want: []int{n - 1}, Logits: make([]float32, m.Vocab)}
			if err := in.Forward(context.Background(), []backend.Run{r}); err != nil {
				t.Fatal(err)
			}
			for id, v := range r.Logits {
				if w := want[(at+n-1)*m.Vocab+id]; math.Float32bits(v) != math.Float32bits(w) {
					t.Fatalf("token %d in passes of %d: logit %d is %g, want %g", at+n-1, n, id, v, w)
				}
			}
		}
	}
	feed(240, 120)
	for range 2 {
		for n := 1; n <= 4; n++ {
			feed(252, n)
			if err := seq.Truncate(240); err != nil {
				t.Fatal(err)
			}
		}
		for n := 1; n <= 4; n++ {
			feed(264, n)
			if err := seq.Truncate(240); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d.Plays < d.Records || d.Records < 16 {
		t.Errorf("%d recordings were played %d times", d.Records, d.Plays)
	}
	if err := errors.Join(seq.Close(), in.Close()); err != nil || d.Open != 0 {
		t.Errorf("%v, %d recordings are open", err, d.Open)
	}
}

// TestFailures lets each call of a device fail in turn, the first, the second and
// so on: the error comes back, sequences are as they were, what is left works once
// the card does again, and nothing stays allocated.
func TestFailures(t *testing.T) {
	m := ternarytest.Model(ternarytest.All()[0].Spec)
	ids := backendtest.Text(&m.Config, 1)
	broken := errors.New("broken")
	fine := false
	for n := 1; !fine; n++ {
		d := &gputest.Recorder{Device: gputest.New(89)}
		d.Idle = true
		b := unproven(t, d, 0)
		calls := 0
		failed := ""
		d.Fail = func(call string) error {
			if calls++; calls == n {
				failed = call
				return fmt.Errorf("%s: %w", call, broken)
			}
			return nil
		}
		lengths := func(want int, seqs ...backend.Sequence) {
			for _, s := range seqs {
				if s != nil && s.Len() != want {
					t.Errorf("call %d, %s: a sequence holds %d tokens, want %d", n, failed, s.Len(), want)
				}
			}
		}
		err := scenario(b, m, ids, lengths)
		fine = failed == ""
		if fine != (err == nil) || !fine && !errors.Is(err, broken) {
			t.Errorf("call %d, %q, failed: %v", n, failed, err)
		}
		if d.Buffers() != 0 || d.Open != 0 {
			t.Errorf("call %d, %q, failed: %d buffers, %d recordings are left", n, failed, d.Buffers(), d.Open)
		}
		if fine {
			t.Logf("%d calls", n-1)
		}
	}
}

// scenario uses all that an instance has. Each step is repeated once if it fails,
// and the first error returned.
func scenario(b *gpu.Backend, m *ternary.Model, ids []int32, lengths func(int, ...backend.Sequence)) (first error) {
	again := func(step func() error) {
		if err := step(); err != nil {
			if first == nil {
				first = err
			}
			if err := step(); err != nil {
				first = errors.Join(first, fmt.Errorf("and again: %w", err))
			}
		}
	}
	ctx := context.Background()
	var in backend.Instance
	again(func() (err error) { in, err = b.Load(ctx, m, backend.Options{KV: backend.KVInt8}); return err })
	if in == nil {
		return first
	}
	var seq, fork backend.Sequence
	again(func() (err error) { seq, err = in.NewSequence(len(ids)); return err })
	at := 0
	for _, n := range []int{70, 1, 1, 1, 3} {
		again(func() error {
			lengths(at, seq)
			r := backend.Run{Seq: seq, Tokens: ids[at : at+n], Want: []int{n - 1}, Logits: make([]float32, m.Vocab)}
			return in.Forward(ctx, []backend.Run{r})
		})
		at += n
		lengths(at, seq)
	}
	again(func() (err error) { fork, err = seq.Fork(); return err })
	again(func() error {
		lengths(at, seq, fork)
		best := make([]backend.Ranked, 2*5)
		two := []backend.Run{{Seq: seq, Tokens: ids[at : at+2], Want: []int{1}}, {Seq: fork, Tokens: ids[at : at+2], Want: []int{0}}}
		return in.(backend.Ranker).ForwardRanked(ctx, two, 5, best)
	})
	lengths(at+2, seq, fork)
	return errors.Join(first, fork.Close(), seq.Close(), in.Close())
}

// TestCancelled: a context that ends stops loading, and a pass between layers.
func TestCancelled(t *testing.T) {
	m := ternarytest.Model(ternarytest.All()[0].Spec)
	d := gputest.New(89)
	d.Idle = true
	b := unproven(t, d, 0)
	ctx, cancel := context.WithCancel(context.Background())
	uploads := 0
	d.Fail = func(call string) error {
		if call == "upload" {
			if uploads++; uploads == 3 {
				cancel()
			}
		}
		return nil
	}
	if _, err := b.Load(ctx, m, backend.Options{}); !errors.Is(err, context.Canceled) || d.Buffers() != 0 {
		t.Fatalf("loading: %v, %d buffers are left", err, d.Buffers())
	}
	d.Fail = nil
	in, err := b.Load(context.Background(), m, backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	seq, err := in.NewSequence(8)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	launches := 0
	d.Fail = func(call string) error {
		if call == "launch" {
			if launches++; launches == 5 {
				cancel()
			}
		}
		return nil
	}
	if err := in.Forward(ctx, []backend.Run{{Seq: seq, Tokens: []int32{1}}}); !errors.Is(err, context.Canceled) || launches > 12 || seq.Len() != 0 {
		t.Errorf("a pass: %v after %d launches", err, launches)
	}
}

// idle is a card that does nothing and allocates nothing, for what a token costs
// the host.
type idle struct{ gputest.Recorder }

func (d *idle) Do(f func() error) error                { return f() }
func (d *idle) Launch(l *gpu.Launch) error             { d.Plays++; return nil }
func (d *idle) Upload(gpu.Buffer, int64, []byte) error { return nil }
func (d *idle) Download(p []byte, _ gpu.Buffer, _ int64) error {
	if copy(p, "\xff\xff\xff\x7f"); len(p) >= 24 { // no fault; token 0
		copy(p[16:], "\x00\x00\x00\x80\x00\x00\x00\x00")
	}
	return nil
}

type idleRecording struct{}

func (idleRecording) Play() error { return nil }
func (idleRecording) Close()      {}

func (d *idle) Record(f func() error) (gpu.Recording, error) { return idleRecording{}, f() }

// idleSingle is an idle card without recordings.
type idleSingle struct{ d *idle }

func (s idleSingle) Info() gpu.Info                                         { return s.d.Info() }
func (s idleSingle) Alloc(n int64) (gpu.Buffer, error)                      { return s.d.Alloc(n) }
func (s idleSingle) Free(b gpu.Buffer)                                      { s.d.Free(b) }
func (s idleSingle) Launch(l *gpu.Launch) error                             { return s.d.Launch(l) }
func (s idleSingle) Upload(b gpu.Buffer, o int64, p []byte) error           { return nil }
func (s idleSingle) Download(p []byte, b gpu.Buffer, o int64) error         { return s.d.Download(p, b, o) }
func (s idleSingle) Copy(gpu.Buffer, int64, gpu.Buffer, int64, int64) error { return nil }

func newIdle() *idle { return &idle{gputest.Recorder{Device: gputest.New(89)}} }

// TestNoAllocations: tokens cost the host no allocation within a step of the cache,
// with recordings and without.
func TestNoAllocations(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it allocates, too
	m := ternarytest.Model(ternarytest.All()[0].Spec)
	for name, d := range map[string]gpu.Device{"recorded": newIdle(), "launches": idleSingle{newIdle()}} {
		for _, ranks := range []int{0, 1, 20} {
			least := uint64(math.MaxUint64)
			for range 3 { // of which the system may disturb some
				least = min(least, allocations(t, unproven(t, d, 0), m, ranks))
			}
			if least != 0 {
				t.Errorf("%s, %d ranks: %d allocations", name, ranks, least)
			}
		}
	}
}

// allocations counts those of a new instance's tokens from the third to the last of
// a step: the second is what is recorded.
func allocations(t *testing.T, b *gpu.Backend, m *ternary.Model, ranks int) uint64 {
	in, err := b.Load(context.Background(), m, backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	seq, err := in.NewSequence(256)
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	runs := []backend.Run{{Seq: seq, Tokens: []int32{0}, Want: []int{0}}}
	best := make([]backend.Ranked, ranks)
	if ranks == 0 {
		runs[0].Logits = make([]float32, m.Vocab)
	}
	var before, after runtime.MemStats
	for i := range 256 {
		if i == 2 {
			runtime.ReadMemStats(&before)
		}
		if ranks > 0 {
			err = in.(backend.Ranker).ForwardRanked(context.Background(), runs, ranks, best)
		} else {
			err = in.Forward(context.Background(), runs)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

// BenchmarkToken is what a greedy token of the 8B's geometry costs the host beside
// the driver: all launches one by one.
func BenchmarkToken(b *testing.B) {
	d := newIdle()
	s := ternarytest.All()[0].Spec
	s.Layers = 36
	m := ternarytest.Model(s)
	in, err := unproven(b, idleSingle{d}, 0).Load(context.Background(), m, backend.Options{})
	if err != nil {
		b.Fatal(err)
	}
	seq, err := in.NewSequence(256)
	if err != nil {
		b.Fatal(err)
	}
	runs := []backend.Run{{Seq: seq, Tokens: []int32{0}, Want: []int{0}}}
	var best [1]backend.Ranked
	d.Plays = 0
	b.ReportAllocs()
	for b.Loop() {
		if err := in.(backend.Ranker).ForwardRanked(context.Background(), runs, 1, best[:]); err != nil {
			b.Fatal(err)
		}
		if err := seq.Truncate(0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(d.Plays)/float64(b.N), "launches/op")
}
