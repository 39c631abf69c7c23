package main

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestEncoding has the GNU assembler encode the text of every encoded
// instruction of every file.
func TestEncoding(t *testing.T) {
	const as, objcopy = "aarch64-linux-gnu-as", "aarch64-linux-gnu-objcopy"
	if _, err := exec.LookPath(as); err != nil {
		t.Skipf("no %s (Debian: binutils-aarch64-linux-gnu)", as)
	}
	var words []word
	seen := map[word]bool{}
	for _, f := range files {
		a := newFile()
		f.write(a)
		for _, w := range a.words {
			if !seen[w] {
				seen[w] = true
				words = append(words, w)
			}
		}
	}
	var text []byte
	for _, w := range words {
		text = append(append(text, w.text...), '\n')
	}
	dir := t.TempDir()
	source, object, flat := filepath.Join(dir, "x.s"), filepath.Join(dir, "x.o"), filepath.Join(dir, "x")
	if err := os.WriteFile(source, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*exec.Cmd{
		exec.Command(as, "-march=armv8.6-a", "-o", object, source),
		exec.Command(objcopy, "-O", "binary", object, flat),
	} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	code, err := os.ReadFile(flat)
	if err != nil {
		t.Fatal(err)
	}
	if len(code) != 4*len(words) {
		t.Fatalf("%d bytes for %d instructions", len(code), len(words))
	}
	for i, w := range words {
		if bits := binary.LittleEndian.Uint32(code[4*i:]); bits != w.bits {
			t.Errorf("%s: 0x%08x, should be 0x%08x", w.text, w.bits, bits)
		}
	}
	t.Logf("%d different instructions", len(words))
}

// TestNotFused reads all files for instructions that round a product and a sum
// once.
func TestNotFused(t *testing.T) {
	fused := regexp.MustCompile(`(?i)\bv?fn?m(la|ls|adds?|addd|subs?|subd)\b`)
	if !fused.MatchString("WORD $0x4e20cc00 // fmla v0.4s, v0.4s, v0.4s") || !fused.MatchString("\tVFMLS V0.S4, V1.S4, V2.S4") {
		t.Fatal("would not see one")
	}
	for _, f := range files {
		a := newFile()
		f.write(a)
		if found := fused.FindString(a.out.String()); found != "" {
			t.Errorf("%s has %s", f.name, found)
		}
	}
}
