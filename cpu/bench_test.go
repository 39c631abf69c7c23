package cpu

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"

	"npack/internal/membw"
)

// benchBlocks is a row of 4,096 columns.
const benchBlocks = 4096 / blockCols

// farSize is more than caches hold, nearSize what a second-level cache does.
const farSize, nearSize = 512 << 20, 192 << 10

// benchSets runs f for every set of kernels that this machine can run.
func benchSets(b *testing.B, f func(b *testing.B, k *kernels)) {
	for _, k := range sets() {
		if k.present() {
			b.Run(k.name, func(b *testing.B) { f(b, k) })
		}
	}
}

// randomBytes returns n of them; any bytes are weights.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	for at := 0; at < n; at += 1 << 20 {
		rng.Read(b[at:min(at+1<<20, n)])
	}
	return b
}

// farBytes are read once a pass, from memory.
var farBytes = sync.OnceValue(func() []byte { return randomBytes(farSize) })

func randomDigits(n int) []int8 {
	x := make([]int8, n)
	for i, v := range randomBytes(n) {
		x[i] = int8(v)
	}
	return x
}

// rate reports how many billions of things were done in every second.
func rate(b *testing.B, perLoop int, unit string) {
	b.ReportMetric(float64(perLoop)*float64(b.N)/b.Elapsed().Seconds()/1e9, unit)
}

// far runs work over the first size of farBytes in the given number of threads
// and compares with how fast this machine reads at the same time.
func far(b *testing.B, threads, item int, work func(thread int, bytes []byte)) {
	data := farBytes()
	part := len(data) / threads / item * item
	machine := membw.Read(threads, farSize, 300*time.Millisecond).BytesPerSecond
	b.SetBytes(int64(part * threads))
	b.ReportAllocs()
	for b.Loop() {
		var wg sync.WaitGroup
		for i := range threads {
			wg.Go(func() { work(i, data[i*part:(i+1)*part]) })
		}
		wg.Wait()
	}
	speed := float64(part*threads) * float64(b.N) / b.Elapsed().Seconds()
	b.ReportMetric(machine/1e9, "membw-GB/s")
	b.ReportMetric(100*speed/machine, "%membw")
}

// BenchmarkDot multiplies rows of 4,096 columns with one vector.
func BenchmarkDot(b *testing.B) {
	benchSets(b, func(b *testing.B, k *kernels) {
		tile := benchBlocks * 12 * k.rows
		near := randomBytes(nearSize / tile * tile)
		for planes := 1; planes <= 3; planes++ {
			x := randomDigits(benchBlocks * planes * blockCols)
			pass := func(w []byte, sums []int32) {
				for ; len(w) >= tile; w = w[tile:] {
					k.dot[planes](sums, w, x, benchBlocks)
				}
			}
			b.Run(fmt.Sprintf("P=%d/L2", planes), func(b *testing.B) {
				sums := make([]int32, 2*planes*k.rows)
				b.SetBytes(int64(len(near)))
				b.ReportAllocs()
				for b.Loop() {
					pass(near, sums)
				}
				rate(b, len(near)*8/3, "Gweights/s")
			})
			if k == &generic {
				continue // would take minutes
			}
			for threads := 1; threads <= 2; threads++ {
				b.Run(fmt.Sprintf("P=%d/DRAM/threads=%d", planes, threads), func(b *testing.B) {
					sums := [2][]int32{make([]int32, 1024), make([]int32, 1024)}
					far(b, threads, tile, func(i int, w []byte) { pass(w, sums[i][:2*planes*k.rows]) })
					rate(b, farSize*8/3, "Gweights/s")
				})
			}
		}
	})
}

// BenchmarkDotMany expands tiles of 4,096 columns, 16 blocks at a time, and
// multiplies them with several vectors.
func BenchmarkDotMany(b *testing.B) {
	const segment = 16
	benchSets(b, func(b *testing.B, k *kernels) {
		tile := benchBlocks * 12 * k.rows
		w := randomBytes(nearSize / tile * tile)
		u := make([]byte, segment*64*k.rows)
		for planes := 1; planes <= 3; planes++ {
			for _, columns := range []int{2, 8, 64} {
				b.Run(fmt.Sprintf("P=%d/columns=%d", planes, columns), func(b *testing.B) {
					stride := benchBlocks * planes * blockCols
					x := randomDigits(columns * stride)
					sums := make([]int32, columns*2*planes*k.rows)
					b.SetBytes(int64(len(w)))
					b.ReportAllocs()
					for b.Loop() {
						for at := 0; at < len(w); at += tile {
							clear(sums)
							for first := 0; first < benchBlocks; first += segment {
								k.expand(u, w[at+first*12*k.rows:][:segment*12*k.rows], segment)
								k.dotMany[planes](sums, u, x[first*planes*blockCols:], segment, columns, stride)
							}
						}
					}
					rate(b, len(w)*8/3*columns, "Gproducts/s")
				})
			}
		}
	})
}

// BenchmarkFinish makes the outputs of one tile.
func BenchmarkFinish(b *testing.B) {
	benchSets(b, func(b *testing.B, k *kernels) {
		for planes := 1; planes <= 3; planes++ {
			b.Run(fmt.Sprintf("P=%d", planes), func(b *testing.B) {
				y, lo, hi := make([]float32, k.rows), make([]float32, k.rows), make([]float32, k.rows)
				sums := make([]int32, 2*planes*k.rows)
				b.ReportAllocs()
				for b.Loop() {
					k.finish(y, sums, lo, hi, planes, 5, 1, 1)
				}
				rate(b, k.rows, "Grows/s")
			})
		}
	})
}

// BenchmarkInt8Dot multiplies rows of 4,096 int8 weights with one vector.
func BenchmarkInt8Dot(b *testing.B) {
	const cols = benchBlocks * blockCols
	benchSets(b, func(b *testing.B, k *kernels) {
		near := randomDigits(nearSize)
		for planes := 1; planes <= 3; planes++ {
			x := make([]byte, benchBlocks*k.int8Bytes(planes))
			k.int8Pack(x, randomDigits(benchBlocks*planes*blockCols), planes, benchBlocks)
			b.Run(fmt.Sprintf("P=%d/L2", planes), func(b *testing.B) {
				sums := make([]int64, nearSize/cols)
				b.SetBytes(nearSize)
				b.ReportAllocs()
				for b.Loop() {
					k.int8Dot(sums, near, cols, x, planes, benchBlocks)
				}
			})
			if k == &generic {
				continue
			}
			for threads := 1; threads <= 2; threads++ {
				b.Run(fmt.Sprintf("P=%d/DRAM/threads=%d", planes, threads), func(b *testing.B) {
					sums := [2][]int64{make([]int64, farSize/cols), make([]int64, farSize/cols)}
					far(b, threads, cols, func(i int, w []byte) {
						k.int8Dot(sums[i][:len(w)/cols], unsafe.Slice((*int8)(unsafe.Pointer(&w[0])), len(w)), cols, x, planes, benchBlocks)
					})
				})
			}
		}
	})
}
