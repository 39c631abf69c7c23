package backend

import (
	"fmt"
	"math"

	"npack/ternary"
)

// The range of scales, norm weights and eps that keeps every intermediate value
// of the forward pass normal (NUMERICS.md, "Load refuses").
const (
	minWeight = 0x1p-40
	maxWeight = 0x1p+40
	minEps    = 0x1p-60
)

// CheckWeights returns an error wrapping [ErrRefused] if a scale or norm weight
// of m is not finite, or is not 0 and below 2^-40 or above 2^40 in size; if a
// bias is not finite or above 2^40; or if eps is outside 2^-60..1.
func CheckWeights(m *ternary.Model) error {
	if err := CheckEps(&m.Config); err != nil {
		return err
	}
	for t := range m.Tensors() {
		if err := CheckTensor(t); err != nil {
			return err
		}
	}
	return nil
}

// CheckEps is the part of [CheckWeights] that needs no tensor.
func CheckEps(c *ternary.Config) error {
	if eps := float64(c.RMSEps); !(eps >= minEps && eps <= 1) {
		return fmt.Errorf("rms_norm_eps is %g, not within 2^-60..1: %w", eps, ErrRefused)
	}
	return nil
}

// CheckTensor is the part of [CheckWeights] for one tensor, or for some rows of
// one.
func CheckTensor(t ternary.Tensor) (err error) {
	switch {
	case t.Ternary != nil:
		if err = checkAll(t.Name, "s_lo", t.Ternary.SLo, minWeight); err == nil {
			err = checkAll(t.Name, "s_hi", t.Ternary.SHi, minWeight)
		}
		if err == nil { // a small bias counts as 0: keep_50
			err = checkAll(t.Name, "bias", t.Ternary.Bias, 0)
		}
		return err
	case t.Int8 != nil:
		return checkAll(t.Name, "scale", t.Int8.Scale, minWeight)
	}
	return checkAll(t.Name, "weight", t.Vector, minWeight)
}

func checkAll(tensor, what string, x []float32, least float64) error {
	for i, v := range x {
		a := math.Abs(float64(v))
		if a != 0 && !(a >= least && a <= maxWeight) {
			return fmt.Errorf("tensor %q: %s[%d] is %g: %w", tensor, what, i, v, ErrRefused)
		}
	}
	return nil
}
