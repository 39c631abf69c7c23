// Package kernels holds the forward pass of NUMERICS.md for graphics cards: one
// kernel text, kernels.k, the PTX that clang makes of it, and the layouts that its
// buffers have on the device.
//
// The text says what each kernel computes, what its arguments are and which grid it
// wants; layout.go makes the buffers that the host fills.
package kernels

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

//go:embed kernels_70.ptx
var ptx70 string

//go:embed kernels_80.ptx
var ptx80 string

// Flags and operations of the kernels; their meaning stands in kernels.k.
const (
	QuantBits, QuantBitNet, QuantList                                 = 1, 2, 4
	LinearBitNet, LinearBias, LinearAdd, LinearSiLU, LinearSquareReLU = 1, 2, 4, 8, 16
	HeadsNorm                                                         = 1

	ProbeMulAdd, ProbeRecip, ProbeRSqrt, ProbeExp, ProbeSiLU, ProbeI64, ProbeDP4A, ProbeToHalf, ProbeFromHalf, ProbeRound, ProbeKeep = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
)

// Kind is the kind of a kernel's parameter.
type Kind int

const (
	Pointer Kind = iota // to device memory; 8 bytes
	Int32
	Float32
)

// Param is one parameter of a kernel.
type Param struct {
	Kind   Kind
	Offset int // in the packed arguments, in bytes
	Size   int // in bytes
}

// Kernel describes one entry of a PTX text.
type Kernel struct {
	Name     string
	Threads  int // of a block
	Params   []Param
	ArgBytes int // of all parameters, packed
}

// PTX returns the text for a card of the given compute capability, ten times the
// major number plus the minor one. Cards newer than all texts take the newest.
func PTX(capability int) (string, error) {
	switch {
	case capability >= 80:
		return ptx80, nil
	case capability >= 70:
		return ptx70, nil
	}
	return "", fmt.Errorf("compute capability %d.%d: kernels need 7.0 or more", capability/10, capability%10)
}

// HasBits reports whether a card has tern_bits' instruction. Cards from 10.0 on only
// emulate it.
func HasBits(capability int) bool { return capability >= 80 && capability < 100 }

// Linear returns the ternary linear that suits a card for n columns of activations of
// the given number of planes. All give the same bits.
//
// For one column tern_bits has a quarter of the instructions of the others. tern_mma splits a
// strip's columns over 8 warps, so that few columns still fill a card; tern_many reads weights
// once for three times as many digits.
func Linear(capability, n, planes int) string {
	switch {
	case !HasMMA(capability):
		return "tern_dot"
	case n == 1 && HasBits(capability):
		return "tern_bits"
	case n*planes <= 96:
		return "tern_mma"
	}
	return "tern_many"
}

// Head returns the kernel of int8 rows that suits a card for n columns.
func Head(capability, n int) string {
	if n <= 2 || !HasMMA(capability) {
		return "head_dot"
	}
	return "head_mma"
}

// HasMMA reports whether the text for a card has tern_mma, tern_many and head_mma.
func HasMMA(capability int) bool { return capability >= 80 }

var (
	entry   = regexp.MustCompile(`(?s)\.entry (\w+)\((.*?)\)(.*?)\{`)
	param   = regexp.MustCompile(`\.param \.([a-z]+)(\d+)`)
	threads = regexp.MustCompile(`\.maxntid (\d+), 1, 1`)
)

// List returns the kernels of a PTX text in their order.
func List(ptx string) ([]Kernel, error) {
	var list []Kernel
	for _, e := range entry.FindAllStringSubmatch(ptx, -1) {
		k := Kernel{Name: e[1]}
		n := threads.FindStringSubmatch(e[3])
		if n == nil {
			return nil, fmt.Errorf("kernel %s: no .maxntid", k.Name)
		}
		k.Threads, _ = strconv.Atoi(n[1])
		for i, line := range strings.Split(strings.TrimSpace(e[2]), ",") {
			m := param.FindStringSubmatch(line)
			if m == nil {
				return nil, fmt.Errorf("kernel %s: parameter %d: %q", k.Name, i, strings.TrimSpace(line))
			}
			p := Param{Kind: Int32, Size: 4}
			switch {
			case m[2] == "64":
				p = Param{Kind: Pointer, Size: 8}
			case m[1] == "f":
				p.Kind = Float32
			}
			p.Offset = (k.ArgBytes + p.Size - 1) / p.Size * p.Size
			k.ArgBytes = p.Offset + p.Size
			k.Params = append(k.Params, p)
		}
		list = append(list, k)
	}
	return list, nil
}
