//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"npack/gpu"
)

// openBuffer opens the card there is, with a buffer of n bytes on it, until the test
// ends.
func openBuffer(t testing.TB, n int64) (*Device, gpu.Buffer) {
	t.Helper()
	d := OpenTest(t)
	b, err := d.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Free(b) })
	return d, b
}

func TestCards(t *testing.T) {
	f := NeedFake(t)
	f.Set(t, "cards", 2)
	cards, err := Cards()
	if err != nil || len(cards) != 2 || cards[1].Index != 1 || cards[1].Bus != "0000:02:00.0" || cards[1].Driver != "12.4" ||
		cards[1].Capability != 89 || cards[1].Processors != 58 || cards[1].Total != 8<<30 || cards[1].Bandwidth() < 300e9 {
		t.Errorf("%+v, %v", cards, err)
	}
	var several *ChoiceError
	if _, err := Open(Any); !errors.As(err, &several) {
		t.Errorf("two cards, none chosen: %v", err)
	}
	d, err := Open(1)
	if err != nil || d.Card().Index != 1 {
		t.Fatalf("card 1: %v", err)
	}
	if i := d.Info(); i.Free != i.Total || i.Capability != 89 || i.Name == "" || i.Driver != "CUDA 12.4" {
		t.Errorf("%+v", i)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	f.Set(t, "cards", 0)
	if _, err := Cards(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("no card: %v", err)
	}
}

// Bytes come back as they were given, through the pinned halves and around their
// edges, although what was given is overwritten at once.
func TestTransfers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sizes := []int{1, 63, 64, back - 1, back, back + 1, piece - 1, piece + 1, half - 1, half, half + 1, 3*half + 7}
	d, buf := openBuffer(t, int64(sizes[len(sizes)-1])+300)
	for _, n := range sizes {
		want, offset := make([]byte, n), rng.Int64N(300)
		for i := range want {
			want[i] = byte(rng.Uint32())
		}
		given := bytes.Clone(want)
		for _, cut := range []int{n / 3, n} { // in two uploads
			from := 0
			if cut == n {
				from = n / 3
			}
			if err := d.Upload(buf, offset+int64(from), given[from:cut]); err != nil {
				t.Fatal(err)
			}
			clear(given[from:cut])
		}
		got := make([]byte, n)
		if err := d.Download(got, buf, offset); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: not what was sent, %v", n, err)
		}
	}
	// Many small ones fill a half as well.
	err := d.Do(func() (err error) {
		for i := range 3 * half / 64 / 16 {
			err = errors.Join(err, d.Upload(buf, int64(i%1000*4), []byte{byte(i), byte(i >> 8), 1, 2}))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	other, err := d.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(other)
	if err := errors.Join(d.Upload(buf, 8, []byte("abcdef")), d.Copy(other, 3, buf, 9, 4), d.Upload(buf, 8, []byte("ABCDEF"))); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if err := d.Download(got, other, 3); err != nil || string(got) != "bcde" {
		t.Errorf("copied %q, %v", got, err)
	}
}

// What would end the context or the process is refused before.
func TestRefused(t *testing.T) {
	d, buf := openBuffer(t, 100)
	for name, got := range map[string]error{
		"upload behind the end":    d.Upload(buf, 97, make([]byte, 4)),
		"upload before the start":  d.Upload(buf, -1, make([]byte, 4)),
		"download behind the end":  d.Download(make([]byte, 101), buf, 0),
		"copy behind the end":      d.Copy(buf, 99, buf, 0, 2),
		"copy from behind the end": d.Copy(buf, 0, buf, 1<<62, 2),
		"copy of less than none":   d.Copy(buf, 0, buf, 0, -1),
		"an unknown kernel":        d.Launch(&gpu.Launch{Kernel: "nothing", Grid: [3]uint32{1, 1, 1}}),
		"no arguments":             d.Launch(&gpu.Launch{Kernel: "embed", Grid: [3]uint32{1, 1, 1}}),
		"no blocks":                d.Launch(embed(buf, [3]uint32{1, 0, 1})),
		"too many blocks":          d.Launch(embed(buf, [3]uint32{1, 65536, 1})),
		"a place behind a buffer":  d.Launch(with(embed(buf, [3]uint32{1, 1, 1}), 0, gpu.Arg{Buf: buf, Val: 100})),
		"a number for a buffer":    d.Launch(with(embed(buf, [3]uint32{1, 1, 1}), 0, gpu.Arg{Val: 7})),
		"a buffer for a number":    d.Launch(with(embed(buf, [3]uint32{1, 1, 1}), 4, gpu.Arg{Buf: buf})),
	} {
		if got == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := d.Alloc(0); err == nil {
		t.Error("no bytes are allocated")
	}
	if err := d.Download(make([]byte, 100), buf, 0); err != nil {
		t.Errorf("the card is unharmed: %v", err)
	}
}

// embed is a launch without effect: of a vector of no length.
func embed(b gpu.Buffer, grid [3]uint32) *gpu.Launch {
	l := &gpu.Launch{Kernel: "embed", Grid: grid, Args: make([]gpu.Arg, 7)}
	for i := range 4 {
		l.Args[i].Buf = b
	}
	return l
}

func with(l *gpu.Launch, i int, a gpu.Arg) *gpu.Launch {
	l.Args[i] = a
	return l
}

// Each error of the driver has its kind. A lost card says so ever after, and can
// be closed.
func TestErrors(t *testing.T) {
	f := NeedFake(t)
	for _, c := range []struct {
		set  string
		n    int
		kind error  // or nil
		text string // within the error
		lost bool
	}{
		{"fail_alloc", 1, gpu.ErrMemory, "allocating 100 bytes on the card: CUDA_ERROR_OUT_OF_MEMORY (2)", false},
		{"memory", 64, gpu.ErrMemory, "OUT_OF_MEMORY", false},
		{"fail_launch", 1, nil, "launching kernel embed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)", false},
		{"fail_run", 1, gpu.ErrLost, "waiting for the card (CUDA_LAUNCH_BLOCKING=1 makes the failing kernel say its name): CUDA_ERROR_LAUNCH_FAILED (719)", true},
		{"fail_call", 1, gpu.ErrLost, "CUDA_ERROR_ILLEGAL_ADDRESS (700)", true},
		{"fail_call", 2, gpu.ErrLost, "ILLEGAL_ADDRESS", true},
		{"fail_call", 3, gpu.ErrLost, "ILLEGAL_ADDRESS", true},
		{"fail_call", 4, gpu.ErrLost, "ILLEGAL_ADDRESS", true},
		{"fail_call", 5, gpu.ErrLost, "ILLEGAL_ADDRESS", true},
	} {
		d := open(t)
		f.Set(t, c.set, c.n)
		use := func() error {
			b, err := d.Alloc(100)
			if err != nil {
				return err
			}
			defer d.Free(b)
			if err := d.Upload(b, 0, make([]byte, 100)); err != nil {
				return err
			}
			if err := d.Launch(embed(b, [3]uint32{1, 1, 1})); err != nil {
				return err
			}
			return d.Download(make([]byte, 100), b, 0)
		}
		err := use()
		if err == nil || !strings.Contains(err.Error(), c.text) || c.kind != nil && !errors.Is(err, c.kind) {
			t.Errorf("%s %d: %v", c.set, c.n, err)
		}
		f.Set(t, "memory", 8<<30)
		if again := use(); c.lost && !errors.Is(again, gpu.ErrLost) || !c.lost && again != nil {
			t.Errorf("%s %d: afterwards %v", c.set, c.n, again)
		}
		d.Info()
		if err := d.Close(); err != nil {
			t.Errorf("%s %d: closing: %v", c.set, c.n, err)
		}
	}
	// All that Open does may fail, and leaves nothing.
	for n := 1; ; n++ {
		f.Set(t, "fail_call", n)
		d, err := Open(Any)
		if err == nil {
			f.Set(t, "fail_call", 0)
			d.Close()
			if n < 20 {
				t.Errorf("Open makes %d calls", n)
			}
			break
		}
		if !errors.Is(err, gpu.ErrLost) {
			t.Errorf("call %d of Open: %v", n, err)
		}
	}
	f.Set(t, "fail_compile", 1)
	if _, err := Open(Any); err == nil || !strings.Contains(err.Error(), "compiling the kernels for sm_89: CUDA_ERROR_INVALID_PTX (218): ptxas application") {
		t.Errorf("compiler: %v", err)
	}
	f.Set(t, "fail_compile", 0)
	f.Set(t, "capability", 61)
	if _, err := Open(Any); !errors.Is(err, ErrUnavailable) {
		t.Errorf("an old card: %v", err)
	}
}

func TestRecord(t *testing.T) {
	d, b := openBuffer(t, 100)
	l := embed(b, [3]uint32{1, 1, 1})
	r, err := d.Record(func() error { return errors.Join(d.Launch(l), d.Launch(l)) })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 3 {
		if err := r.Play(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Download(make([]byte, 100), b, 0); err != nil {
		t.Fatal(err)
	}
	want := errors.New("stop")
	if _, err := d.Record(func() error { return want }); err != want {
		t.Errorf("an error while recording: %v", err)
	}
	if _, err := d.Record(func() error { return d.Upload(b, 0, make([]byte, 4)) }); err == nil {
		t.Error("an upload was recorded")
	}
	if err := errors.Join(d.Launch(l), d.Download(make([]byte, 100), b, 0)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A device may be used from any goroutine, one at a time: the calls are made on
// the thread that has the context.
func TestThreads(t *testing.T) {
	d, b := openBuffer(t, 100)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				mu.Lock()
				err := d.Do(func() error {
					return errors.Join(d.Launch(embed(b, [3]uint32{1, 1, 1})), d.Download(make([]byte, 4), b, 0))
				})
				err = errors.Join(err, d.Launch(embed(b, [3]uint32{1, 1, 1})))
				mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestNoAllocations(t *testing.T) {
	d, b := openBuffer(t, 100)
	var err error
	l, p := embed(b, [3]uint32{1, 1, 1}), make([]byte, 100)
	_ = d.Do(func() error {
		if n := testing.AllocsPerRun(100, func() {
			err = errors.Join(err, d.Upload(b, 0, p[:8]), d.Launch(l), d.Download(p, b, 0))
		}); n != 0 {
			t.Errorf("%v allocations in Do", n)
		}
		return nil
	})
	if n := testing.AllocsPerRun(100, func() { err = errors.Join(err, d.Launch(l)) }); n != 0 || err != nil {
		t.Errorf("%v allocations of a launch from elsewhere, %v", n, err)
	}
}

// BenchmarkLaunch is a launch's cost on the host: alone, from another thread, and
// of 400 in a recording.
func BenchmarkLaunch(b *testing.B) {
	NeedFake(b).Set(b, "noop", 1)
	d, buf := openBuffer(b, 100)
	l, p := embed(buf, [3]uint32{1, 1, 1}), make([]byte, 4)
	b.Run("there", func(b *testing.B) {
		b.ReportAllocs()
		err := d.Do(func() error {
			for n := 0; b.Loop(); n++ {
				if err := d.Launch(l); err != nil {
					return err
				}
				if n%400 == 0 { // the fake keeps what is launched until someone waits
					if err := d.Download(p, buf, 0); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	})
	b.Run("hop", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := d.Do(func() error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
}
