//go:build amd64 && !noasm

package cpu

import (
	"sync"

	"golang.org/x/sys/unix"
)

// tilesPermitted asks Linux, once, for the state of tiles, which it gives to
// processes that do (since 5.16), if the processor's XCR0 has it. Signals then save
// 11 KiB; the stacks that Go handles them on have 32.
var tilesPermitted = sync.OnceValue(func() bool {
	const requestPermission, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
})
