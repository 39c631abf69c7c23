//go:build !linux && !darwin && !windows

package machine

import "runtime"

func online() int { return runtime.NumCPU() }

func systemMemory() Memory { return Memory{} }
