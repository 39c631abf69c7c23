//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// FakeDriver is the project's own driver (cuda/_fake).
type FakeDriver struct{ set, get uintptr }

// Fake returns the project's own driver, nil if there is none or a real one.
func Fake() *FakeDriver {
	if _, err := driver(); err != nil {
		return nil
	}
	h, err := openLibrary()
	if err != nil {
		return nil
	}
	f := &FakeDriver{}
	if f.set, err = findSymbol(h, "fakecuda_set"); err != nil {
		return nil
	}
	if f.get, err = findSymbol(h, "fakecuda_get"); err != nil {
		return nil
	}
	return f
}

// Set sets one of the settings of libcuda.cpp until the test ends.
func (f *FakeDriver) Set(t testing.TB, name string, v int) {
	before := f.Get(name)
	f.write(name, v)
	t.Cleanup(func() { f.write(name, before) })
}

func (f *FakeDriver) write(name string, v int) {
	text := append([]byte(name), 0)
	purego.SyscallN(f.set, uintptr(unsafe.Pointer(&text[0])), uintptr(v))
}

// Get returns a count or a setting.
func (f *FakeDriver) Get(name string) int {
	text := append([]byte(name), 0)
	r, _, _ := purego.SyscallN(f.get, uintptr(unsafe.Pointer(&text[0])))
	return int(r)
}
