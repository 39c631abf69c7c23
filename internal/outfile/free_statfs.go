//go:build linux || darwin

package outfile

import "golang.org/x/sys/unix"

// freeBytes is the room that an ordinary user has on the file system of dir.
func freeBytes(dir string) (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Blocks == 0 {
		return 0, false // some virtual file systems report no size at all
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}
