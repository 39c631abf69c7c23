//go:build !noasm

package cpu

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// tablesGo is the definition of tables3AVX2.
func tablesGo(dst, x []int8, blocks int) {
	for i := range blocks * blockCols / 4 {
		for entry := range 16 {
			sum := int32(512 * 0x010101)
			for c := range 4 {
				if entry>>c&1 == 1 {
					sum += activation(x, 3, i/8, i%8*4+c)
				}
			}
			for d, bits := range []int{7, 7, 6, 6} {
				dst[(i*4+d)*16+entry] = int8(sum & (1<<bits - 1))
				sum >>= bits
			}
		}
	}
}

func TestTables(t *testing.T) {
	if !hasAVX2() {
		t.Skip("this processor lacks the instructions")
	}
	for kind, digit := range digitKinds {
		for _, blocks := range []int{1, 2, 3, 8, 33} {
			_, x := testDigits(blocks*blockCols, 3, digit)
			want := make([]int8, blocks*8*4*16)
			tablesGo(want, x, blocks)
			got, lives := guarded[int8](len(want), -77)
			tables3AVX2(&got[0], &x[0], blocks)
			if !slices.Equal(got, want) || !lives() {
				t.Errorf("%s digits, %d blocks: %v, want %v (canaries live: %t)", kind, blocks, got, want, lives())
			}
		}
	}
}

// avo takes registers of AVX-512 when it runs out of others, and says nothing.
func TestRegistersAVX2(t *testing.T) {
	wide := regexp.MustCompile(`(?m)^.*\b([XY](1[6-9]|2[0-9]|3[01])|Z[0-9]+|K[0-7])\b.*$`)
	for _, name := range []string{"avx2_amd64.s", "avx2_vectors_amd64.s", "arrange_amd64.s"} {
		code, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if line := wide.Find(code); line != nil {
			t.Errorf("%s: %s", name, line)
		}
		if !regexp.MustCompile(`\bY0\b`).Match(code) {
			t.Errorf("%s has not even Y0: is this the code?", name)
		}
	}
}
