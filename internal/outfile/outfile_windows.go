package outfile

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

func isFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

func reportFileLimit() {}

// syncDir does nothing: a directory cannot be flushed here.
func syncDir(string) {}

// freeBytes is the room that the user has on the volume of dir.
func freeBytes(dir string) (int64, bool) {
	p, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, false
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(p, &free, nil, nil); err != nil {
		return 0, false
	}
	return int64(min(free, 1<<62)), true
}

// lockFile keeps other programs that ask for it off f until it is closed. Locks
// are binding here, so it takes a byte that no file has.
func lockFile(f *os.File) error {
	const far = 0x7fffffff
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{OffsetHigh: far})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return err
	}
	return nil
}
