package machine

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

func online() int { return int(windows.GetActiveProcessorCount(windows.ALL_PROCESSOR_GROUPS)) }

var globalMemoryStatusEx = windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

// memoryStatusEx is MEMORYSTATUSEX.
type memoryStatusEx struct {
	length                                     uint32
	load                                       uint32
	totalPhys, availPhys                       uint64
	totalPage, availPage, totalVirt, availVirt uint64
	availExtendedVirt                          uint64
}

func systemMemory() Memory {
	s := memoryStatusEx{}
	s.length = uint32(unsafe.Sizeof(s))
	if ok, _, _ := globalMemoryStatusEx.Call(uintptr(unsafe.Pointer(&s))); ok == 0 {
		return Memory{}
	}
	return Memory{Total: int64(s.totalPhys), Available: int64(min(s.availPhys, s.availPage))}
}
