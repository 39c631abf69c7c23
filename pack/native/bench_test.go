package native_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"npack/internal/membw"
	"npack/pack/native"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

// container names a file to benchmark instead of a made one:
// go test -bench . ./pack/native -args -container /tmp/8b.bin
var container = flag.String("container", "", "benchmark this native container")

func benchFile(b *testing.B) string {
	if *container != "" {
		return *container
	}
	path := filepath.Join(b.TempDir(), "bench.bin")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := native.Write(f, ternarytest.Model(ternarytest.Spec{Seed: 1, Config: ternary.Config{Arch: ternary.Qwen3,
		Layers: 2, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 64, RotaryDims: 64, Intermediate: 3072, Vocab: 4096,
		MaxPosition: 4096, RMSEps: 1e-6, RopeTheta: 1e6}})); err != nil {
		b.Fatal(err)
	}
	return path
}

// Opening is work by the number of records; bytes are given to show it.
func BenchmarkOpen(b *testing.B) {
	path := benchFile(b)
	b.ReportAllocs()
	for b.Loop() {
		f, err := native.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}

// BenchmarkSurvey opens, validates and counts a file in the page cache, and
// compares the speed with that of reading memory.
func BenchmarkSurvey(b *testing.B) {
	path := benchFile(b)
	memory := membw.Read(runtime.GOMAXPROCS(0), 512<<20, 500*time.Millisecond)
	var size int64
	b.ReportAllocs()
	for b.Loop() {
		f, err := native.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		size = f.Size()
		if _, err := f.Model().Survey(context.Background(), ternary.WalkOptions{}); err != nil {
			b.Fatal(f.Place(err))
		}
		f.Close()
	}
	b.SetBytes(size)
	b.ReportMetric(100*float64(size)*float64(b.N)/b.Elapsed().Seconds()/memory.BytesPerSecond, "%-of-memory")
}

func BenchmarkDigests(b *testing.B) {
	path := benchFile(b)
	b.ReportAllocs()
	for b.Loop() {
		f, err := native.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(f.Size())
		if _, err := f.Model().Digests(context.Background(), ternary.WalkOptions{}); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
