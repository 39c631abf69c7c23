//go:build gpu && (amd64 || arm64)

package cuda

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// openLibrary loads the driver from the system's own folder, nowhere else.
func openLibrary() (uintptr, error) {
	const name = "nvcuda.dll"
	h, err := windows.LoadLibraryEx(name, 0, windows.LOAD_LIBRARY_SEARCH_SYSTEM32)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return uintptr(h), nil
}

func findSymbol(h uintptr, name string) (uintptr, error) {
	return windows.GetProcAddress(windows.Handle(h), name)
}
