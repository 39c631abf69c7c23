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

// randomBytes returns n of them, where weights lie; any bytes are weights.
func randomBytes(n int) []byte {
	b, err := allocate(n)
	if err != nil {
		panic(err)
	}
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

// benchLinears runs f for every linear of every set.
func benchLinears(b *testing.B, f func(b *testing.B, k *kernels, l *linear)) {
	benchSets(b, func(b *testing.B, k *kernels) {
		for planes := 1; planes <= 3; planes++ {
			b.Run(fmt.Sprintf("P=%d", planes), func(b *testing.B) { f(b, k, k.linear[planes]) })
		}
	})
}

// BenchmarkDot multiplies rows of 4,096 columns with one vector.
func BenchmarkDot(b *testing.B) {
	benchLinears(b, func(b *testing.B, k *kernels, l *linear) {
		tile := benchBlocks * 12 * l.rows
		near := randomBytes(nearSize / tile * tile)
		x, _ := l.formOf(randomDigits(benchBlocks * l.planes * blockCols))
		pass := func(w []byte, sums []int32) {
			for ; len(w) >= tile; w = w[tile:] {
				l.dot(sums, w, x, benchBlocks)
			}
		}
		b.Run("L2", func(b *testing.B) {
			sums := make([]int32, 2*l.planes*l.rows)
			b.SetBytes(int64(len(near)))
			b.ReportAllocs()
			for b.Loop() {
				pass(near, sums)
			}
			rate(b, len(near)*8/3, "Gweights/s")
		})
		if k == &generic {
			return // would take minutes
		}
		for threads := 1; threads <= 2; threads++ {
			b.Run(fmt.Sprintf("DRAM/threads=%d", threads), func(b *testing.B) {
				sums := [2][]int32{make([]int32, 1024), make([]int32, 1024)}
				far(b, threads, tile, func(i int, w []byte) { pass(w, sums[i][:2*l.planes*l.rows]) })
				rate(b, farSize*8/3, "Gweights/s")
			})
		}
	})
}

// BenchmarkMany multiplies tiles of 4,096 columns with several vectors.
func BenchmarkMany(b *testing.B) {
	benchLinears(b, func(b *testing.B, k *kernels, l *linear) {
		tile := benchBlocks * 12 * l.rows
		w := randomBytes(nearSize / tile * tile)
		for _, columns := range []int{2, 4, 8, 64} {
			b.Run(fmt.Sprintf("columns=%d", columns), func(b *testing.B) {
				l := l.of(columns)
				x, _ := l.formOf(randomDigits(columns * benchBlocks * l.planes * blockCols))
				stride := benchBlocks * l.formBytes
				sums, scratch := make([]int32, columns*2*l.planes*l.rows), make([]byte, l.scratch(columns))
				b.SetBytes(int64(len(w)))
				b.ReportAllocs()
				for b.Loop() {
					for at := 0; at < len(w); at += tile {
						l.many(sums, w[at:at+tile], x, benchBlocks, columns, stride, scratch)
					}
				}
				rate(b, len(w)*8/3*columns, "Gproducts/s")
			})
		}
	})
}

// BenchmarkForm makes 4,096 activations what dot wants.
func BenchmarkForm(b *testing.B) {
	benchLinears(b, func(b *testing.B, _ *kernels, l *linear) {
		if l.form == nil {
			b.Skip("takes digits as they are")
		}
		x, dst := randomDigits(benchBlocks*l.planes*blockCols), make([]int8, benchBlocks*l.formBytes)
		b.ReportAllocs()
		for b.Loop() {
			l.form(dst, x, benchBlocks)
		}
	})
}

// BenchmarkFinish makes the outputs of one tile.
func BenchmarkFinish(b *testing.B) {
	benchLinears(b, func(b *testing.B, _ *kernels, l *linear) {
		y, lo, hi := make([]float32, l.rows), make([]float32, l.rows), make([]float32, l.rows)
		sums := make([]int32, 2*l.planes*l.rows)
		b.ReportAllocs()
		for b.Loop() {
			l.finish(y, sums, lo, hi, l.planes, 5, 1, 1)
		}
		rate(b, l.rows, "Grows/s")
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
					sums := [2][]int64{make([]int64, tableRows), make([]int64, tableRows)}
					far(b, threads, tableRows*cols, func(i int, w []byte) {
						for ; len(w) > 0; w = w[tableRows*cols:] {
							k.int8Dot(sums[i], unsafe.Slice((*int8)(unsafe.Pointer(&w[0])), len(w)), cols, x, planes, benchBlocks)
						}
					})
				})
			}
		}
	})
}
