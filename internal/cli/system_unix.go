//go:build unix

package cli

import (
	"os/signal"
	"syscall"
)

// noSpace are the system's words for a lack of disk space (or of the right to
// use it) and of memory.
var noSpace = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.ENOMEM}

// ignoreFileSizeSignal makes a write past "ulimit -f" fail with EFBIG. By
// default the signal ends a Go program with a stack trace.
func ignoreFileSizeSignal() { signal.Ignore(syscall.SIGXFSZ) }
