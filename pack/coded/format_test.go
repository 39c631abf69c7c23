package coded_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"npack/internal/hexdoc"
	"npack/pack/coded"
)

// example lists a transport as FORMAT.md does.
func example(t *testing.T, b []byte) string {
	x, err := coded.ReadIndex(context.Background(), "worked.tv4z", bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	at := 0
	line := func(n int, note string) {
		if zeros := b[at : at+n]; n > 1 && bytes.Count(zeros, []byte{0}) == n {
			fmt.Fprintf(&s, "%04x  00 x%d  %s\n", at, n, note)
		} else {
			fmt.Fprintf(&s, "%04x  % x  %s\n", at, zeros, note)
		}
		at += n
	}
	le := binary.LittleEndian
	line(4, "magic")
	line(4, "version 1, reserved")
	line(8, fmt.Sprintf("source_size %d", x.Header.SourceSize))
	line(16, "md5")
	line(4, fmt.Sprintf("%d blocks", x.Header.Blocks))
	line(4, "reserved")
	for _, blk := range x.Blocks {
		line(1, fmt.Sprintf("block %d: %s", blk.Index, blk.Method))
		line(8, fmt.Sprintf("source_offset %d", blk.Source))
		if blk.Method == coded.T5Q {
			line(8, fmt.Sprintf("L = %d", blk.Size/3))
			line(8, fmt.Sprintf("payload_size %d", blk.Payload))
			for i := 0; i < 125; {
				j := i
				for j < 125 && le.Uint16(b[at+2*(j-i):]) == 0 {
					j++
				}
				if j > i {
					line(2*(j-i), "")
					i = j
					continue
				}
				line(2, fmt.Sprintf("freq[%d] = %d", i, le.Uint16(b[at:])))
				i++
			}
		} else {
			line(8, fmt.Sprintf("n = %d", blk.Size))
		}
		for left := int(blk.Payload); left > 0; left -= 24 {
			line(min(left, 24), "payload")
		}
	}
	return strings.ReplaceAll(s.String(), "  \n", "\n")
}

// The worked example of FORMAT.md is the file, said with what the reader finds.
func TestFormatExample(t *testing.T) {
	want := file(t, "worked.tv4z")
	text, _, got, err := hexdoc.Example("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the example is not worked.tv4z")
	}
	if text != example(t, want) {
		t.Errorf("the example should be\n%s", example(t, want))
	}
}
