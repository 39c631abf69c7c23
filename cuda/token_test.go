//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"npack/cuda"
	"npack/runtime/backend"
	"npack/ternary/ternarytest"
)

// cpuTime is what this process has used of the processor, in nanoseconds: what
// others use of it does not count.
func cpuTime() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkToken is what a pass through 36 layers, as many as the 8B model has,
// costs on the host, the driver's own work aside: the kernels do nothing. A token
// is a recording; a pass of 9 columns is launched kernel by kernel.
func BenchmarkToken(b *testing.B) {
	s := ternarytest.All()[0].Spec
	s.Layers, s.Vocab = 36, 151936
	m := ternarytest.Model(s)
	f, be := cuda.NeedFake(b), backendOn(b)
	f.Set(b, "noop", 1)
	in, err := be.Load(context.Background(), m, backend.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	for _, c := range []struct {
		name    string
		columns int
		ranked  bool // no logits come back
	}{{"greedy", 1, true}, {"logits", 1, false}, {"columns=9", 9, true}} {
		b.Run(c.name, func(b *testing.B) {
			seq, err := in.NewSequence(256)
			if err != nil {
				b.Fatal(err)
			}
			defer seq.Close()
			run := []backend.Run{{Seq: seq, Tokens: make([]int32, c.columns), Want: []int{c.columns - 1}}}
			best := make([]backend.Ranked, 1)
			if !c.ranked {
				run[0].Logits = make([]float32, s.Vocab)
			}
			pass := func() error {
				if err := seq.Truncate(0); err != nil {
					return err
				}
				if c.ranked {
					return in.(backend.Ranker).ForwardRanked(context.Background(), run, 1, best)
				}
				return in.Forward(context.Background(), run)
			}
			for range 2 { // the second time records
				if err := pass(); err != nil {
					b.Fatal(err)
				}
			}
			kernels, calls := f.Get("runs"), f.Get("calls")
			b.ReportAllocs()
			used := cpuTime()
			for b.Loop() {
				if err := pass(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime()-used)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(f.Get("runs")-kernels)/float64(b.N), "kernels/op")
			b.ReportMetric(float64(f.Get("calls")-calls)/float64(b.N), "calls/op")
		})
	}
}
