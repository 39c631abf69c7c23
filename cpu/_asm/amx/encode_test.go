package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestEncoding has the GNU assembler encode the text of every encoded instruction.
func TestEncoding(t *testing.T) {
	for _, tool := range []string{"as", "objcopy"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s (Debian: binutils)", tool)
		}
	}
	a := newFile()
	tiles(a)
	if len(a.encoded) == 0 {
		t.Fatal("no instructions")
	}
	text := []byte(".intel_syntax noprefix\n")
	for _, i := range a.encoded {
		text = append(append(text, i.text...), '\n')
	}
	dir := t.TempDir()
	source, object, flat := filepath.Join(dir, "x.s"), filepath.Join(dir, "x.o"), filepath.Join(dir, "x")
	if err := os.WriteFile(source, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*exec.Cmd{
		exec.Command("as", "--64", "-o", object, source),
		exec.Command("objcopy", "-O", "binary", "-j", ".text", object, flat),
	} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	got, err := os.ReadFile(flat)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range a.encoded {
		if n := len(i.bytes); len(got) < n || !bytes.Equal(i.bytes, got[:n]) {
			t.Fatalf("%s: % x, should be % x", i.text, i.bytes, got[:min(n, len(got))])
		} else {
			got = got[n:]
		}
	}
	if len(got) != 0 {
		t.Errorf("%d bytes more", len(got))
	}
}
