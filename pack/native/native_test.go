package native_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"npack/pack/native"
)

func TestRoundTrip(t *testing.T) {
	files, _ := filepath.Glob("../../testdata/*/*.bin")
	for _, name := range files {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := native.Open(name)
		if err != nil {
			t.Log(err)
			continue
		}
		t.Log(name, f.Place(f.Model().Validate()))
		var b bytes.Buffer
		if err := native.Write(&b, f.Model()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s differs", name)
		}
		if got := native.ModelSize(f.Model()); got != f.Size() {
			t.Errorf("%s: size %d, want %d", name, got, f.Size())
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
