package machine

import (
	"runtime"

	"golang.org/x/sys/unix"
)

func online() int { return runtime.NumCPU() }

// systemMemory counts free pages and those that hold files' contents, which
// the system drops when it needs them. If it does not tell, Available is 0.
func systemMemory() Memory {
	total, _ := unix.SysctlUint64("hw.memsize")
	m := Memory{Total: int64(total)}
	free, err1 := unix.SysctlUint32("vm.page_free_count")
	files, err2 := unix.SysctlUint32("vm.page_pageable_external_count")
	if err1 == nil && err2 == nil {
		m.Available = (int64(free) + int64(files)) * int64(unix.Getpagesize())
	}
	return m
}
