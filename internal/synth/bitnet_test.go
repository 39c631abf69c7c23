package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"npack/pack/foreign"
	"npack/pack/native"
	"npack/ternary"
)

// TestBitNet writes a small checkpoint in both forms, which is imported.
func TestBitNet(t *testing.T) {
	c := bitnet2B
	c.Layers, c.Vocab, c.Hidden, c.Heads, c.KVHeads, c.Intermediate = 1, 100, 256, 2, 1, 300
	for _, form := range []string{formPacked, formTrained} {
		dir := filepath.Join(t.TempDir(), form)
		if err := writeBitNet(dir, &c, form, 3); err != nil {
			t.Fatal(err)
		}
		f, err := foreign.Open(dir, foreign.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var b bytes.Buffer
		if err := native.Write(&b, f.Model()); err != nil {
			t.Fatal(err)
		}
		n, err := native.OpenBytes(form, b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		s, err := n.Model().Survey(t.Context(), ternary.WalkOptions{})
		if err != nil || n.Model().Config != c {
			t.Fatalf("%v, %+v", err, n.Model().Config)
		}
		if share := float64(s.Total.Zeros()) / float64(s.Total.Weights); share < 0.28 || share > 0.36 {
			t.Errorf("%s: %.3f of the weights are 0", form, share)
		}
	}
	if err := writeBitNet(t.TempDir(), &c, "other", 3); err == nil {
		t.Error("another form")
	}
}
