//go:build !noasm

package cpu

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// tablesGo is the definition of the functions tables.
func tablesGo(dst, x []int8, planes, blocks int) (more int64) {
	for i := range blocks * blockCols / 4 {
		var four [4]int64
		least := int64(0)
		for c := range four {
			four[c] = int64(activation(x, planes, i/8, i%8*4+c))
			least += min(four[c], 0)
		}
		more -= 3 * least
		for entry := range 16 {
			sum := -least
			for c, v := range four {
				if entry>>c&1 == 1 {
					sum += v
				}
			}
			digits := tableDigits[planes]
			for d, bits := range digits {
				dst[(i*len(digits)+d)*16+entry] = int8(sum & (1<<bits - 1))
				sum >>= bits
			}
		}
	}
	return more
}

func TestTables(t *testing.T) {
	if !hasAVX2() {
		t.Skip("this processor lacks the instructions")
	}
	for planes := 1; planes <= 3; planes++ {
		l := avx2.linear[planes]
		for kind, digit := range digitKinds {
			for _, blocks := range []int{1, 2, 3, 8, 33} {
				_, x := testDigits(blocks*blockCols, planes, digit)
				want := make([]int8, blocks*l.formBytes)
				wantMore := tablesGo(want, x, planes, blocks)
				got, lives := guarded[int8](len(want), -77)
				more := l.form(got, x, blocks)
				if more != wantMore || !slices.Equal(got, want) || !lives() {
					t.Errorf("%d planes, %s digits, %d blocks: %v and %d, want %v and %d (canaries live: %t)", planes, kind, blocks, got, more, want, wantMore, lives())
				}
			}
		}
	}
}

// avo takes registers of AVX-512 when it runs out of others, and says nothing.
func TestRegistersAVX2(t *testing.T) {
	wide := regexp.MustCompile(`(?m)^.*\b([XY](1[6-9]|2[0-9]|3[01])|Z[0-9]+|K[0-7])\b.*$`)
	for _, name := range []string{"avx2_amd64.s", "avx2_vectors_amd64.s", "arrange_amd64.s", "avxvnni_amd64.s"} {
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
