//go:build unix

package outfile

import (
	"errors"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// isFull reports whether err means a full disk, a used-up quota or the
// process's limit on the size of a file.
func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}

// reportFileLimit turns the signal of the limit on file sizes (ulimit -f),
// which would end the program with a stack trace, into an error of Write.
var reportFileLimit = sync.OnceFunc(func() { signal.Ignore(unix.SIGXFSZ) })

// syncDir makes a rename durable. The file is complete under its name either
// way, so an error does not matter.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
