package native

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"

	"npack/pack"
	"npack/ternary/ternarytest"
)

// Digest is of the bytes that Write writes, and ends with its context.
func TestDigest(t *testing.T) {
	for _, tt := range ternarytest.All() {
		m := ternarytest.Model(tt.Spec)
		var b bytes.Buffer
		if err := Write(&b, m); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b.Bytes())
		want := pack.Pin{Bytes: int64(b.Len()), SHA256: hex.EncodeToString(sum[:])}
		if got, err := Digest(t.Context(), m); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", tt.Name, got, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := ternarytest.Model(ternarytest.All()[0].Spec)
	if got, err := Digest(ctx, m); !errors.Is(err, context.Canceled) || got != (pack.Pin{}) {
		t.Errorf("after the end: %+v, %v", got, err)
	}
	m.FinalNorm = nil
	if _, err := Digest(t.Context(), m); err == nil {
		t.Error("a model that Write refuses has a digest")
	}
}
