package native_test

import (
	"context"
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

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

// BenchmarkSurvey opens, validates and counts a file in the page cache.
func BenchmarkSurvey(b *testing.B) {
	path := benchFile(b)
	b.ReportAllocs()
	for b.Loop() {
		f, err := native.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(f.Size())
		if _, err := f.Model().Survey(context.Background(), ternary.WalkOptions{}); err != nil {
			b.Fatal(f.Place(err))
		}
		f.Close()
	}
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

// BenchmarkMemoryRead is what the others compare with: adding up the words of
// ordinary memory, larger than the caches, on all cores.
func BenchmarkMemoryRead(b *testing.B) {
	data := make([]byte, 512<<20)
	for i := 0; i < len(data); i += 512 { // pages of their own
		data[i] = 1
	}
	sums := make([]uint64, runtime.GOMAXPROCS(0)*8) // a cache line each
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		var wg sync.WaitGroup
		for g := range len(sums) / 8 {
			part := len(data) / (len(sums) / 8) &^ 31
			p := data[g*part : (g+1)*part]
			wg.Go(func() {
				var s0, s1, s2, s3 uint64
				for ; len(p) >= 32; p = p[32:] {
					s0 += binary.LittleEndian.Uint64(p)
					s1 += binary.LittleEndian.Uint64(p[8:])
					s2 += binary.LittleEndian.Uint64(p[16:])
					s3 += binary.LittleEndian.Uint64(p[24:])
				}
				sums[g*8] += s0 + s1 + s2 + s3
			})
		}
		wg.Wait()
	}
}
