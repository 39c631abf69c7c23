//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// open opens the card there is, or skips the test. The caller closes it.
func open(t testing.TB) *Device {
	t.Helper()
	d, err := Open(Any)
	if errors.Is(err, ErrUnavailable) {
		t.Skipf("%v (make gpu-proof runs this on a driver of its own)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// OpenTest is open until the test ends.
func OpenTest(t testing.TB) *Device {
	t.Helper()
	d := open(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

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

// NeedFake returns the project's own driver, or skips the test. When the test ends,
// nothing may be left on its cards.
func NeedFake(t testing.TB) *FakeDriver {
	t.Helper()
	open(t).Close()
	f := Fake()
	if f == nil {
		t.Skip("this driver is a real one: its errors cannot be ordered, and its kernels take time")
	}
	t.Cleanup(func() { f.Empty(t, t.Name()) })
	return f
}

// Empty fails the test if anything is left on the cards.
func (f *FakeDriver) Empty(t testing.TB, what string) {
	t.Helper()
	if f.Get("held") != 0 || f.Get("leaked") != 0 {
		t.Errorf("%s left behind: %d held, %d leaked", what, f.Get("held"), f.Get("leaked"))
	}
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
