//go:build gpu && (linux || windows) && (amd64 || arm64)

package cuda

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Built says whether this program can drive a card.
const Built = true

// api holds the addresses of the driver's functions. The youngest of them came
// with CUDA 11.4 (driver 470, 2021), which knows every card from Volta on or has
// successors that do.
type api struct {
	init, driverGetVersion                                                                             uintptr
	deviceGetCount, deviceGet, deviceGetName, deviceGetAttribute, deviceTotalMem, deviceGetPCIBusID    uintptr
	primaryCtxRetain, primaryCtxRelease, ctxSetCurrent                                                 uintptr
	moduleLoadDataEx, moduleGetFunction, moduleUnload, funcGetAttribute                                uintptr
	memAlloc, memFree, memGetInfo, memHostAlloc, memFreeHost                                           uintptr
	memcpyHtoDAsync, memcpyDtoHAsync, memcpyDtoDAsync                                                  uintptr
	streamCreate, streamDestroy, streamSynchronize, streamBeginCapture, streamEndCapture, launchKernel uintptr
	eventCreate, eventDestroy, eventRecord, eventSynchronize                                           uintptr
	graphInstantiate, graphLaunch, graphDestroy, graphExecDestroy                                      uintptr
}

// symbols is the table of names in the driver's library.
func (a *api) symbols() []symbol {
	return []symbol{
		{"cuInit", &a.init}, {"cuDriverGetVersion", &a.driverGetVersion},
		{"cuDeviceGetCount", &a.deviceGetCount}, {"cuDeviceGet", &a.deviceGet}, {"cuDeviceGetName", &a.deviceGetName},
		{"cuDeviceGetAttribute", &a.deviceGetAttribute}, {"cuDeviceTotalMem_v2", &a.deviceTotalMem}, {"cuDeviceGetPCIBusId", &a.deviceGetPCIBusID},
		{"cuDevicePrimaryCtxRetain", &a.primaryCtxRetain}, {"cuDevicePrimaryCtxRelease_v2", &a.primaryCtxRelease}, {"cuCtxSetCurrent", &a.ctxSetCurrent},
		{"cuModuleLoadDataEx", &a.moduleLoadDataEx}, {"cuModuleGetFunction", &a.moduleGetFunction}, {"cuModuleUnload", &a.moduleUnload},
		{"cuFuncGetAttribute", &a.funcGetAttribute},
		{"cuMemAlloc_v2", &a.memAlloc}, {"cuMemFree_v2", &a.memFree}, {"cuMemGetInfo_v2", &a.memGetInfo},
		{"cuMemHostAlloc", &a.memHostAlloc}, {"cuMemFreeHost", &a.memFreeHost},
		{"cuMemcpyHtoDAsync_v2", &a.memcpyHtoDAsync}, {"cuMemcpyDtoHAsync_v2", &a.memcpyDtoHAsync}, {"cuMemcpyDtoDAsync_v2", &a.memcpyDtoDAsync},
		{"cuStreamCreate", &a.streamCreate}, {"cuStreamDestroy_v2", &a.streamDestroy}, {"cuStreamSynchronize", &a.streamSynchronize},
		{"cuStreamBeginCapture_v2", &a.streamBeginCapture}, {"cuStreamEndCapture", &a.streamEndCapture}, {"cuLaunchKernel", &a.launchKernel},
		{"cuEventCreate", &a.eventCreate}, {"cuEventDestroy_v2", &a.eventDestroy}, {"cuEventRecord", &a.eventRecord}, {"cuEventSynchronize", &a.eventSynchronize},
		{"cuGraphInstantiateWithFlags", &a.graphInstantiate},
		{"cuGraphLaunch", &a.graphLaunch}, {"cuGraphDestroy", &a.graphDestroy}, {"cuGraphExecDestroy", &a.graphExecDestroy},
	}
}

type symbol struct {
	name string
	at   *uintptr
}

// The attributes of cuda.h that are asked for.
const (
	attrMaxGridX, attrMaxGridY    = 5, 6
	attrProcessors                = 16
	attrMemoryClock, attrBusWidth = 36, 37
	attrMajor, attrMinor          = 75, 76
)

// driver is the library once it is loaded and initialised; it stays loaded.
var driver = sync.OnceValues(func() (*api, error) {
	h, err := openLibrary()
	if err != nil {
		return nil, unavailablef("no NVIDIA driver: %s", firstLine(err.Error()))
	}
	a := new(api)
	for _, s := range a.symbols() {
		if *s.at, err = findSymbol(h, s.name); err != nil {
			return nil, unavailablef("the NVIDIA driver is older than CUDA 11.4, it lacks %s", s.name)
		}
	}
	if r := call(a.init, 0); r != 0 {
		return nil, &Error{Op: "starting the NVIDIA driver", Code: r}
	}
	return a, nil
})

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// call calls a function of the driver, all of whose arguments are integers and
// pointers. Memory of Go that args point to stays where it is during the call.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) int32 {
	r, _, _ := purego.SyscallN(fn, args...)
	return int32(uint32(r))
}

// Cards lists the machine's cards. It starts nothing on them. Where there is no
// driver or no card, the error wraps [ErrUnavailable].
func Cards() ([]Card, error) {
	a, err := driver()
	if err != nil {
		return nil, err
	}
	version, n := new(int32), new(int32)
	if r := call(a.driverGetVersion, uintptr(unsafe.Pointer(version))); r != 0 {
		return nil, &Error{Op: "asking for the driver's version", Code: r}
	}
	if r := call(a.deviceGetCount, uintptr(unsafe.Pointer(n))); r != 0 {
		return nil, &Error{Op: "counting cards", Code: r}
	}
	if *n == 0 {
		return nil, &Error{Op: "counting cards", Code: 100}
	}
	cards := make([]Card, *n)
	for i := range cards {
		cards[i] = Card{Index: i, Driver: fmt.Sprintf("%d.%d", *version/1000, *version%1000/10)}
		if err := a.describe(&cards[i]); err != nil {
			return nil, err
		}
	}
	return cards, nil
}

// describe fills in what the driver knows of card c.Index.
func (a *api) describe(c *Card) error {
	dev, total := new(int32), new(uint64)
	if r := call(a.deviceGet, uintptr(unsafe.Pointer(dev)), uintptr(c.Index)); r != 0 {
		return &Error{Op: fmt.Sprintf("looking at card %d", c.Index), Code: r}
	}
	text := make([]byte, 256)
	for _, f := range []struct {
		fn uintptr
		to *string
	}{{a.deviceGetName, &c.Name}, {a.deviceGetPCIBusID, &c.Bus}} {
		if r := call(f.fn, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)), uintptr(*dev)); r != 0 {
			return &Error{Op: fmt.Sprintf("naming card %d", c.Index), Code: r}
		}
		*f.to, _, _ = strings.Cut(string(text), "\x00")
	}
	if r := call(a.deviceTotalMem, uintptr(unsafe.Pointer(total)), uintptr(*dev)); r != 0 {
		return &Error{Op: fmt.Sprintf("asking for the memory of card %d", c.Index), Code: r}
	}
	c.Total = int64(*total)
	c.Capability = 10*a.attribute(*dev, attrMajor) + a.attribute(*dev, attrMinor)
	c.Processors = a.attribute(*dev, attrProcessors)
	c.BusWidth, c.MemoryClock = a.attribute(*dev, attrBusWidth), a.attribute(*dev, attrMemoryClock)
	return nil
}

// attribute returns a number that describes a card, 0 if the driver does not
// know it.
func (a *api) attribute(dev int32, which int) int {
	v := new(int32)
	if call(a.deviceGetAttribute, uintptr(unsafe.Pointer(v)), uintptr(which), uintptr(dev)) != 0 {
		return 0
	}
	return int(*v)
}
