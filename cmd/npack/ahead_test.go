package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
)

var errBroken = errors.New("broken")

// narrow takes some bytes.
type narrow struct {
	bytes.Buffer
	room int
}

func (n *narrow) Write(b []byte) (int, error) {
	if n.room -= len(b); n.room < 0 {
		return 0, errBroken
	}
	return n.Buffer.Write(b)
}

func TestAhead(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcde"), 200_000) // 3 MB
	out := &narrow{room: 1 << 30}
	var shown int64
	a := newAhead(t.Context(), out, true, func(n int64) { shown = n })
	for b := data; len(b) > 0; b = b[min(len(b), 700_001):] {
		if n, err := a.Write(b[:min(len(b), 700_001)]); err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	if _, err := a.Seek(0, 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("seek: %v", err)
	}
	if err := a.finish(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), data) || a.end != int64(len(data)) || shown != a.end || a.sha256 != fmt.Sprintf("%x", sha256.Sum256(data)) {
		t.Errorf("%d bytes, %d, %d, %s", out.Len(), a.end, shown, a.sha256)
	}

	// An error ends the writing soon, and is not lost if nothing more is written.
	a = newAhead(t.Context(), &narrow{room: 1 << 20}, false, func(int64) {})
	n := 0
	for n < 1000 {
		if _, err := a.Write(data[:1<<20]); errors.Is(err, errBroken) {
			break
		}
		n++
	}
	if n > aheadPieces+2 {
		t.Errorf("%d MiB were taken after the error", n)
	}
	if err := a.finish(); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	a = newAhead(t.Context(), &narrow{}, false, func(int64) {})
	if _, err := a.Write(data[:5]); err != nil {
		t.Error(err)
	}
	if err := a.finish(); !errors.Is(err, errBroken) {
		t.Error(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	a = newAhead(ctx, &narrow{room: 1 << 30}, false, func(int64) {})
	cancel()
	if _, err := a.Write(data); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := a.finish(); err != nil {
		t.Error(err)
	}
}
