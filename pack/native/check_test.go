package native_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"npack/pack"
	"npack/pack/native"
	"npack/ternary"
)

// surveyed is what opening and surveying a container says.
func surveyed(name string, b []byte) (*ternary.Survey, error, error) {
	f, err := native.OpenBytes(name, b)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	s, err := f.Model().Survey(context.Background(), ternary.WalkOptions{Threads: 1})
	if err != nil {
		return nil, nil, f.Place(err)
	}
	if s.FirstMismatch != nil {
		return s, f.Place(s.FirstMismatch), nil
	}
	return s, nil, nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A container that passes by is judged as one that was opened, in all that is
// counted and in every word of an error.
func TestCheckAgrees(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, b := range containers(t) {
		tries := [][]byte{b}
		for range 40 {
			c := bytes.Clone(b)
			at := rnd.IntN(len(c))
			if rnd.IntN(2) == 0 {
				at = rnd.IntN(min(len(c), 1000)) // headers are in front
			}
			c[at] ^= 1 << rnd.IntN(8)
			tries = append(tries, c)
		}
		for _, c := range tries {
			want, wantSum, wantErr := surveyed(name, c)
			got, sum, err := native.Check(name, int64(len(c)), bytes.NewReader(c))
			if first, second := new(pack.Error), new(pack.Error); errors.As(err, &first) && errors.As(wantErr, &second) && first.Offset < second.Offset {
				continue // what comes first is found first; opening looks at all structure before
			}
			if d := cmp.Diff(want, got); d != "" || text(sum) != text(wantSum) || text(err) != text(wantErr) {
				t.Errorf("%s: got %v, %v; opened: %v, %v; %s", name, sum, err, wantSum, wantErr, d)
			}
		}
	}
}

// Readers may give a byte at a time, end early or fail.
func TestCheckReader(t *testing.T) {
	b := containers(t)["a2-untied-2l.bin"]
	want, _, err := native.Check("x", int64(len(b)), bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := native.Check("x", int64(len(b)), iotest.OneByteReader(bytes.NewReader(b)))
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
	for _, n := range []int{0, 59, 60, 70, 1000, len(b) / 2, len(b) - 1} {
		if _, _, err := native.Check("x", int64(len(b)), bytes.NewReader(b[:n])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %v", n, err)
		}
		failing := io.MultiReader(bytes.NewReader(b[:n]), iotest.ErrReader(io.ErrClosedPipe))
		if _, _, err := native.Check("x", int64(len(b)), failing); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("failing after %d bytes: %v", n, err)
		}
	}
}
