// Command count prints how many instructions the kernels for x86-64 execute:
//
//	go -C cpu/_asm run ./count
//
// It reads the assembly of package cpu and follows jumps and counters, on which
// vectors and memory have no influence. The processor need not have the instructions.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
)

// A row has 4,096 columns, as in the benchmarks.
const blocks, blockWeights = 128, 32

// side is the calls with which a set does what a kernel is for, and the weights that
// they work on.
type side struct {
	weights int
	calls   []call
}

type call struct {
	function string
	args     args
}

// dot is a call for one column, on tiles of so many rows.
func dot(function string, rows int) side {
	return side{rows * blocks * blockWeights, []call{{function, args{"blocks": blocks, "rows": rows}}}}
}

// many is a pair of calls, where the first expands n blocks of a tile.
func many(expand, function string, rows, n, columns int) side {
	s := side{rows * n * blockWeights, []call{{function, args{"blocks": n, "columns": columns}}}}
	if expand != "" {
		s.calls = append(s.calls, call{expand, args{"blocks": n}})
	}
	return s
}

// inPlace is a call of a kernel of planes for each column.
func inPlace(planes, columns int) side {
	s := side{weights: 16 * blocks * blockWeights}
	for range columns {
		s.calls = append(s.calls, call{fmt.Sprintf("dotInPlace%dAVX512", planes), args{"groups": blocks * blockWeights / 512}})
	}
	return s
}

// arranged is what is done instead of that: 16 rows are arranged, then expanded and
// multiplied, 8 blocks at a time.
func arranged(planes, columns int) side {
	s := side{weights: 16 * blocks * blockWeights}
	for range 2 {
		s.calls = append(s.calls, call{"arrangeCodesAVX2", args{"groups": blocks * blockWeights / 256}})
	}
	for range blocks / 8 {
		s.calls = append(s.calls, many("expandAVX512", fmt.Sprintf("dotMany%dAVX512", planes), 16, 8, columns).calls...)
	}
	return s
}

func main() {
	log.SetFlags(0)
	functions, err := read("../*_amd64.s")
	if err != nil {
		log.Fatal(err)
	}
	row := func(name string, columns int, sides ...side) {
		fmt.Printf("%-12s %8d", name, columns)
		for _, s := range sides {
			n, err := s.count(functions)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf(" %9.0f", float64(n)/float64(s.weights*columns)*2048)
		}
		fmt.Println()
	}
	fmt.Printf("instructions for 2,048 weights and one column of activations, in rows of %d\n", blocks*blockWeights)
	fmt.Printf("%-12s %8s %9s %9s\n", "", "columns", "avx2", "avxvnni")
	for p := 1; p <= 3; p++ {
		row(fmt.Sprintf("dot P=%d", p), 1, dot(fmt.Sprintf("lookUp%dAVX2", p), 64), dot(fmt.Sprintf("dot%dAVXVNNI", p), 64))
	}
	for p := 1; p <= 3; p++ {
		for _, columns := range []int{2, 3, 4, 8, 64} {
			row(fmt.Sprintf("many P=%d", p), columns, many("", fmt.Sprintf("lookUpMany%dAVX2", p), 64, blocks, columns), many("expandAVXVNNI", fmt.Sprintf("dotMany%dAVXVNNI", p), 64, 4, columns))
		}
	}
	for p := 1; p <= 3; p++ {
		row(fmt.Sprintf("int8Dot P=%d", p), 1, dot(fmt.Sprintf("int8Dot%dAVX2", min(p, 2)), 64), dot(fmt.Sprintf("int8Dot%dAVXVNNI", p), 64))
	}
	fmt.Printf("the same of avx512vnni, with weights that are arranged, in place, or arranged in every pass\n")
	fmt.Printf("%-12s %8s %9s %9s %9s\n", "", "columns", "arranged", "in place", "every")
	for p := 1; p <= 3; p++ {
		row(fmt.Sprintf("dot P=%d", p), 1, dot(fmt.Sprintf("dot%dAVX512", p), 16), inPlace(p, 1), arranged(p, 1))
	}
	for p := 1; p <= 3; p++ {
		for _, columns := range []int{2, 4, 8, 64} {
			row(fmt.Sprintf("many P=%d", p), columns, many("expandAVX512", fmt.Sprintf("dotMany%dAVX512", p), 16, 8, columns), inPlace(p, columns), arranged(p, columns))
		}
	}
}

func read(pattern string) (map[string]*function, error) {
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("no %s: run this in cpu/_asm/count or by go -C cpu/_asm run ./count", pattern)
	}
	functions := map[string]*function{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		parse(string(text), functions)
	}
	return functions, nil
}

func (s side) count(functions map[string]*function) (sum int, err error) {
	for _, c := range s.calls {
		f := functions[c.function]
		if f == nil {
			return 0, fmt.Errorf("there is no function %s", c.function)
		}
		n, err := f.run(c.args)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", c.function, err)
		}
		sum += n
	}
	return sum, nil
}
