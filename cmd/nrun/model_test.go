package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"npack/testdata/story"
)

// TestModelThatCannotRun: what can be stored and inspected need not be one
// that a forward pass is defined for, or hold weights that are weights. All of
// it is refused before a kernel sees it.
func TestModelThatCannotRun(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(b []byte)
		code int
		want []string
	}{
		{"odd rotary_dims", func(b []byte) { binary.LittleEndian.PutUint32(b[32:], 31) }, 6, []string{"rotary_dims is 31", "byte 32"}},
		{"rotary_dims above head_dim", func(b []byte) { binary.LittleEndian.PutUint32(b[32:], 64) }, 6, []string{"rotary_dims is 64"}},
		// The first trit record's planes begin behind the header, four norms
		// and 20 bytes of geometry; all bits of the first byte of bp and bn.
		{"bp and bn both set", func(b []byte) {
			at := 60 + 4*(256+256+32+32) + 20
			planes := b[at:]
			rows, stride := 256, 64
			planes[0], planes[rows*stride] = 0xff, 0xff
		}, 4, []string{`"blk.0.attn_q"`, "row 0"}},
		{"not a finite scale", func(b []byte) {
			at := 60 + 4*(256+256+32+32) + 20 + 3*256*64
			binary.LittleEndian.PutUint32(b[at:], 0x7f800000)
		}, 4, []string{`"blk.0.attn_q"`}},
	} {
		b := bytes.Clone(story.Container)
		c.edit(b)
		path := filepath.Join(t.TempDir(), "m.bin")
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		code, out, errs := nrun("", "generate", "--ids", "1,2", "-n", "1", path)
		if code != c.code || out != "" {
			t.Errorf("%s: exit %d, want %d; stdout %q, stderr %s", c.name, code, c.code, out, errs)
		}
		for _, w := range c.want {
			if !strings.Contains(errs, w) {
				t.Errorf("%s: stderr %q lacks %q", c.name, errs, w)
			}
		}
	}
}
