// Package numerics holds what sim.py, an implementation of NUMERICS.md in numpy,
// gives on the story models: the first 8 bytes of the sha256 of each position's
// logits.
package numerics

import "embed"

//go:embed *.json
var Files embed.FS
