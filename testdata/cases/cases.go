// Package cases holds broken, hostile and merely odd files after reports of
// real users. README.md tells each story, expected.json the outcome.
package cases

import (
	"embed"
	"encoding/json"
)

// Files holds the files of all cases by name.
//
//go:embed *.bin *.gguf *.safetensors *.json
var Files embed.FS

// Case is the outcome that a file should have.
type Case struct {
	File        string          `json:"file"`
	Case        string          `json:"case"` // "A-07" in README.md
	Bytes       int64           `json:"bytes"`
	SHA256      string          `json:"sha256"`
	Verdict     string          `json:"verdict"`      // "accept", "reject" or "either"
	MustMention []string        `json:"must_mention"` // by the error's text
	Why         string          `json:"why"`
	Expect      json.RawMessage `json:"expect"` // values that the file holds
}

// All returns the cases in the order of expected.json. It panics if that file
// is broken.
func All() []Case {
	b, err := Files.ReadFile("expected.json")
	if err != nil {
		panic(err)
	}
	var list struct {
		Files []Case `json:"files"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		panic(err)
	}
	return list.Files
}
