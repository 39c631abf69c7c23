//go:build !gpu || !(linux || windows) || !(amd64 || arm64)

package cuda

import (
	"runtime"

	"npack/gpu"
)

// Built says whether this program can drive a card.
const Built = false

// Device is a card that this program cannot open.
type Device struct{ gpu.Device }

// errNotBuilt is the reason.
var errNotBuilt = unavailablef("this program was built without it (go build -tags gpu, on Linux or Windows; this is %s/%s)", runtime.GOOS, runtime.GOARCH)

// Cards returns an error wrapping [ErrUnavailable].
func Cards() ([]Card, error) { return nil, errNotBuilt }

// Open returns an error wrapping [ErrUnavailable].
func Open(device int) (*Device, error) { return nil, errNotBuilt }

// Card returns nothing.
func (d *Device) Card() Card { return Card{} }

// Close does nothing.
func (d *Device) Close() error { return nil }

// Kernels returns nothing.
func (d *Device) Kernels() (map[string]Compiled, error) { return nil, errNotBuilt }
