package gpu_test

import (
	"context"
	"os"
	"syscall"
	"testing"

	"npack/gpu"
	"npack/pack/native"
	"npack/runtime/backend"
	"npack/ternary"
	"npack/testdata/story"
)

// BenchmarkLoad is what loading costs the host beside the driver: reading, checking
// and packing of the container in NPACK_BENCH_MODEL or, without, the story model.
func BenchmarkLoad(b *testing.B) {
	f, err := native.OpenBytes("embedded", story.Container)
	if path := os.Getenv("NPACK_BENCH_MODEL"); path != "" {
		f, err = native.Open(path)
	}
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	m := f.Model()
	to := unproven(b, nowhere{newIdle()}, 0)
	b.SetBytes(gpu.Plan(m, backend.Options{}, 0, 1).Weights)
	b.ReportAllocs()
	start := cpuSeconds()
	for b.Loop() {
		load(b, to, m)
	}
	b.ReportMetric((cpuSeconds()-start)/float64(b.N), "cpu-s/op")
}

func load(b *testing.B, to *gpu.Backend, m *ternary.Model) {
	in, err := to.Load(context.Background(), m, backend.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if err := in.Close(); err != nil {
		b.Fatal(err)
	}
}

// nowhere is an idle card of any size.
type nowhere struct{ *idle }

func (nowhere) Alloc(n int64) (gpu.Buffer, error) { return gpu.Buffer{Addr: 1, Size: n}, nil }
func (nowhere) Free(gpu.Buffer)                   {}
func (nowhere) Info() gpu.Info                    { return gpu.Info{Capability: 89, Free: 1 << 40} }

func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
