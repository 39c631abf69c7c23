// Command arm64 writes the arm64 assembly of package cpu:
//
//	go generate ./cpu
//
// avo knows amd64 only, and Go's assembler lacks most vector arithmetic. What
// it lacks is written as an encoded WORD with the instruction in GNU syntax
// behind it (encode.go); a test has the GNU assembler encode each of them too.
// What Go's assembler has is left to it (native.go).
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"
)

// files are the files written, with what writes their functions.
var files = []struct {
	name  string
	write func(a *asm)
}{
	{"dot_arm64.s", func(a *asm) {
		for planes := 1; planes <= 3; planes++ {
			dotSDOT(a, planes)
			dotNEON(a, planes)
		}
		finish(a)
	}},
	{"many_arm64.s", func(a *asm) {
		expand(a)
		manySDOT(a)
		manySMMLA(a)
		manyNEON(a)
	}},
	{"int8_arm64.s", func(a *asm) {
		for planes := 1; planes <= 3; planes++ {
			int8SDOT(a, planes)
			int8NEON(a, planes)
		}
	}},
	{"vectors_arm64.s", func(a *asm) {
		squares(a)
		normScale(a)
		absMax(a)
		for planes := 1; planes <= 3; planes++ {
			quantize(a, planes)
		}
		addVectors(a)
		toHalf(a)
		fromHalf(a)
		fromInt8(a)
		rotate(a)
		addScaled(a)
	}},
	{"attention_arm64.s", func(a *asm) {
		writeConstants(a)
		scores(a)
		mix(a)
		for _, heads := range []int{4, 2, 1} {
			scoresHalf(a, heads)
			mixHalf(a, heads)
		}
		softmax(a)
		siluMul(a)
	}},
}

func main() {
	dir := flag.String("out", ".", "folder of package cpu")
	flag.Parse()
	for _, f := range files {
		a := newFile()
		f.write(a)
		if err := os.WriteFile(filepath.Join(*dir, f.name), a.out.Bytes(), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
