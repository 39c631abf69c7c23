// Package tv4z holds small native containers, and coded and packed forms of them, that
// the publisher's program has read and written. README.md says what each of
// them exercises and gives its sha256.
package tv4z

import "embed"

// Files holds NAME.bin (native containers; the bad-*.bin break a rule of the
// planes), NAME.tv4z (the coded transport of the container of that name) and
// NAME.t5q (its packed form).
//
//go:embed *.bin *.tv4z *.t5q README.md
var Files embed.FS

// Bad says where the one broken rule of each bad-*.bin is.
var Bad = map[string]struct {
	Tensor, Part string
	Row, Col     int
	Offset       int64 // of the byte of the plane
}{
	"bad-bpbn.bin": {"blk.0.ffn_gate", "bn", 48, 32, 50080},
	"bad-br.bin":   {"blk.0.ffn_gate", "br", 32, 21, 55198},
	"bad-tail.bin": {"blk.0.ffn_gate", "br", 96, 511, 59483},
}
