package cli

import "golang.org/x/sys/windows"

// noSpace are the system's words for a lack of disk space and of memory.
var noSpace = []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL,
	windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_COMMITMENT_LIMIT}

func ignoreFileSizeSignal() {} // Windows has no such limit
