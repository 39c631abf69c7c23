package ternarytest

import (
	"testing"

	"npack/ternary"
)

// Every standard model must keep all rules, row sums included.
func TestAllValid(t *testing.T) {
	for _, n := range All() {
		t.Run(n.Name, func(t *testing.T) {
			m := Model(n.Spec)
			s, err := m.Survey(t.Context(), ternary.WalkOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if s.SumMismatches != 0 {
				t.Errorf("%d wrong row sums, first: %v", s.SumMismatches, s.FirstMismatch)
			}
			if s.Total.Zeros() == 0 || s.Total.PlusLo == 0 || s.Total.PlusHi == 0 || s.Total.MinusLo == 0 || s.Total.MinusHi == 0 {
				t.Errorf("a kind of weight is missing: %+v", s.Total)
			}
		})
	}
}
