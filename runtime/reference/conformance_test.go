package reference_test

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"npack/runtime/backend/backendtest"
	"npack/runtime/reference"
	"npack/ternary/ternarytest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestConformance(t *testing.T) { backendtest.Run(t, reference.Backend{}) }

// The logits of the seeded models have stored checksums, equal on every
// platform: make arm64 runs this under qemu.
func TestGoldenLogits(t *testing.T) {
	golden, err := backendtest.Golden()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range backendtest.Cases(testing.Short() && !*update) {
		m := ternarytest.Model(c.Spec)
		got[c.Name] = backendtest.Checksum(backendtest.Reference(t, m, c.Options, backendtest.Text(&m.Config, 1)))
		if got[c.Name] != golden[c.Name] && !*update {
			t.Errorf("%s: logits have checksum %s, stored %q", c.Name, got[c.Name], golden[c.Name])
		}
	}
	if *update {
		data, _ := json.MarshalIndent(got, "", "\t")
		if err := os.WriteFile("../backend/backendtest/golden.json", append(data, '\n'), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
