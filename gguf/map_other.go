//go:build !unix && !windows

package gguf

import "os"

func mapFile(f *os.File, size int64) (mapping, error) { return readFile(f, size) }
