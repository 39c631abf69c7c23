package outfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeEarly has the system start to write what f holds to the disk, without
// waiting for the end. Left alone Linux begins when a tenth of all memory waits
// to be written, and the disk idles while a file is made; Commit would then wait
// for most of it. An error costs time, not correctness.
func writeEarly(f *os.File) {
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}
