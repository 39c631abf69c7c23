package native

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"

	"npack/pack"
	"npack/ternary"
)

// Digest returns the length and sha256 of the container that [Write] makes of m,
// and keeps nothing of it. It ends with ctx, with its error; a fault of mapped
// memory is [ternary.ErrFault].
func Digest(ctx context.Context, m *ternary.Model) (pack.Pin, error) {
	d := digest{ctx: ctx, hash: sha256.New()}
	if err := ternary.Guard(func() error { return Write(&d, m) }); err != nil {
		return pack.Pin{}, err
	}
	return pack.Pin{Bytes: d.n, SHA256: hex.EncodeToString(d.hash.Sum(nil))}, nil
}

// digest hashes and counts what is written to it until ctx ends.
type digest struct {
	ctx  context.Context
	hash hash.Hash
	n    int64
}

func (d *digest) Write(b []byte) (int, error) {
	if err := d.ctx.Err(); err != nil {
		return 0, err
	}
	d.n += int64(len(b))
	return d.hash.Write(b)
}
