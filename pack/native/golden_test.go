package native_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"

	"npack/pack/native"
	"npack/ternary/ternarytest"
)

// golden are the sha256 of the standard test models as containers. A change
// here means that the generator or the format changed, and with them every
// golden value that other packages derive from these models.
var golden = map[string]string{
	"qwen3-tied":            "22532088a34f5463b7488448c23c0ef4bad7d1ba5878116a1788dca8ff77cd7f",
	"qwen3-untied-odd":      "5a34390e5d39133e8c97a804b0da0766fb299ad103f8b725d4585d7bd11102d7",
	"qwen3-wide":            "515a47b7e0d4a4626e13cc277d4cb8373d4781ea3055c82036c2d480237c8241",
	"qwen3-tight":           "543fed6e922ff777d13846ce1e13b4c1696e155d058ff8af4afd10d610e84582",
	"qwen2-bias-tied":       "c68a5940e8e78270899789190c689b9e84692c457d0f3fc77fac6ed21341b23e",
	"qwen2-bias-untied-odd": "d433f631fa6ae50e6ce67c2d45f31f90da74ac36eefc7672dd3847ac33db46e8",
	"bitnet-untied":         "b29889a6007f1ca6eed6d0db22f8950c8ef55bd299c1a3a1db33afbcdf63f454",
	"bitnet-tied-odd":       "a9aec0395d308fb2d65e109d8cf4665e97c133a4192ea4947a6e99ea90697a3b",
}

func TestGoldenModels(t *testing.T) {
	for _, n := range ternarytest.All() {
		t.Run(n.Name, func(t *testing.T) {
			m := ternarytest.Model(n.Spec)
			var b bytes.Buffer
			if err := native.Write(&b, m); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%x", sha256.Sum256(b.Bytes())); got != golden[n.Name] {
				t.Errorf("%q: %q,", n.Name, got)
			}
			if got, want := int64(b.Len()), native.ModelSize(m); got != want {
				t.Errorf("%d bytes, ModelSize says %d", got, want)
			}
			if want := native.Size(&m.Config); !n.Spec.Tight && int64(b.Len()) != want {
				t.Errorf("%d bytes, Size says %d", b.Len(), want)
			}
			f, err := native.OpenBytes(n.Name, b.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Model().Validate(); err != nil {
				t.Fatal(err)
			}
			var again bytes.Buffer
			if err := native.Write(&again, f.Model()); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again.Bytes(), b.Bytes()) {
				t.Error("reading and writing changes bytes")
			}
		})
	}
}
