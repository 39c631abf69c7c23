//go:build gpu && (amd64 || arm64)

package cuda

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// libraries is where the driver may be. Some systems keep it outside the dynamic
// linker's paths: NixOS and, under Windows, WSL.
var libraries = []string{"libcuda.so.1", "/run/opengl-driver/lib/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"}

// openLibrary loads the driver. Its error is that of the first place.
func openLibrary() (h uintptr, err error) {
	// Why a library cannot be loaded is known to the thread that tried.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, name := range libraries {
		h, e := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if e == nil {
			return h, nil
		}
		if err == nil {
			err = e
		}
	}
	return 0, err
}

func findSymbol(h uintptr, name string) (uintptr, error) { return purego.Dlsym(h, name) }
