//go:build noasm || !(amd64 || arm64)

package cpu

import "runtime"

func pause(uint32) { runtime.Gosched() }
