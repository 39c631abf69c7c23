// Command oracle prints what gguf-parser-go finds in GGUF files: one JSON line a
// file, with keys in order and tensors in order. It is a module of its own so
// that npack does not depend on it.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	parser "github.com/gpustack/gguf-parser-go"
)

type tensor struct {
	Name string   `json:"name"`
	Dims []uint64 `json:"dims"`
	Type uint32   `json:"type"`
	At   uint64   `json:"at"` // in the file
	Size uint64   `json:"size"`
}

func main() {
	for _, path := range os.Args[1:] {
		f, err := parser.ParseGGUFFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, path, err)
			os.Exit(1)
		}
		var out struct {
			Keys    []string `json:"keys"`
			Tensors []tensor `json:"tensors"`
		}
		for _, kv := range f.Header.MetadataKV {
			out.Keys = append(out.Keys, kv.Key)
		}
		for _, t := range f.TensorInfos {
			out.Tensors = append(out.Tensors, tensor{t.Name, t.Dimensions, uint32(t.Type), uint64(f.TensorDataStartOffset) + t.Offset, t.Bytes()})
		}
		if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
