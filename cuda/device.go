//go:build gpu && (linux || windows) && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"npack/gpu"
	"npack/gpu/kernels"
)

// Device is an open card. It implements [gpu.Recorder]; like any Device it may be
// used by one goroutine at a time.
type Device struct {
	*api
	card Card
	dev  int32

	work   chan request
	done   chan error
	inside bool // the caller waits in Do: methods run on the owner's thread already

	context, module, stream uintptr
	functions               map[string]*function
	maxGrid                 [3]uint32
	info                    gpu.Info

	staging
	pin   runtime.Pinner
	args  *arguments
	words [11]uintptr // of invoke: as many as cuLaunchKernel takes
	lost  error       // once the context is: all calls return it
}

// request is what the owner's thread is asked to do: f, or the launch l.
type request struct {
	f func() error
	l *gpu.Launch
}

// function is a kernel in the loaded module.
type function struct {
	handle uintptr
	kernels.Kernel
}

// arguments is what cuLaunchKernel reads: the packed arguments, their length,
// and the list that names both. It is pinned, so that the addresses within it
// stay right.
type arguments struct {
	buf   [4096]byte // the most that a kernel of any card can take
	size  uint64
	extra [5]uintptr
}

// Open makes a card ready: its context, the kernels in the driver's compiler, and
// pinned memory. device is an index of [Cards] or [Any]. Errors of the choice are
// [*ChoiceError]; where the machine cannot run the kernels they wrap
// [ErrUnavailable].
func Open(device int) (*Device, error) {
	cards, err := Cards()
	if err != nil {
		return nil, err
	}
	c, err := choose(cards, device)
	if err != nil {
		return nil, err
	}
	a, err := driver()
	if err != nil {
		return nil, err
	}
	d := &Device{api: a, card: *c, work: make(chan request), done: make(chan error), functions: map[string]*function{}, args: new(arguments)}
	d.pin.Pin(d.args)
	d.args.extra = [5]uintptr{1, uintptr(unsafe.Pointer(&d.args.buf)), 2, uintptr(unsafe.Pointer(&d.args.size)), 0}
	go d.own()
	if err := d.Do(d.open); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// own is the goroutine that makes the driver's calls. It ends with the channel,
// and its thread with it: the thread is locked for good.
func (d *Device) own() {
	runtime.LockOSThread()
	for r := range d.work {
		if r.l != nil {
			d.done <- d.launch(r.l)
		} else {
			d.done <- r.f()
		}
	}
}

// Do runs f on the thread of the card's context, where calls of the Device cost
// no change of thread. It implements [gpu.Owner].
func (d *Device) Do(f func() error) error {
	if d.inside {
		return f()
	}
	return d.ask(request{f: f})
}

func (d *Device) ask(r request) error {
	d.inside = true
	d.work <- r
	err := <-d.done
	d.inside = false
	return err
}

// invoke is [call] without its allocation, for what is called in every pass. args
// hold no address of memory that Go could move: only of pinned memory, the card's
// and the driver's.
func (d *Device) invoke(fn uintptr, args ...uintptr) int32 {
	n := copy(d.words[:], args)
	r, _, _ := purego.SyscallN(fn, d.words[:n]...)
	return int32(uint32(r))
}

// open runs on the owner's thread.
func (d *Device) open() error {
	dev, ctx := new(int32), new(uintptr)
	if err := d.check(call(d.deviceGet, uintptr(unsafe.Pointer(dev)), uintptr(d.card.Index)), "opening card %d", d.card.Index); err != nil {
		return err
	}
	d.dev = *dev
	if err := d.check(call(d.primaryCtxRetain, uintptr(unsafe.Pointer(ctx)), uintptr(d.dev)), "making a context on card %d", d.card.Index); err != nil {
		return err
	}
	d.context = *ctx
	if err := d.check(call(d.ctxSetCurrent, d.context), "making the context current"); err != nil {
		return err
	}
	const nonBlocking = 1
	stream := new(uintptr)
	if err := d.check(call(d.streamCreate, uintptr(unsafe.Pointer(stream)), nonBlocking), "making a stream"); err != nil {
		return err
	}
	d.stream = *stream
	if err := d.staging.open(d); err != nil {
		return err
	}
	for i, a := range []int{attrMaxGridX, attrMaxGridY, attrMaxGridY} {
		d.maxGrid[i] = uint32(d.attribute(d.dev, a))
	}
	d.info = gpu.Info{Name: d.card.Name, Driver: "CUDA " + d.card.Driver, Capability: d.card.Capability, Processors: d.card.Processors, Total: d.card.Total}
	return d.load()
}

// The options of cuModuleLoadDataEx that are used, of cuda.h.
const (
	jitErrorLog     = 5
	jitErrorLogSize = 6
)

// load has the driver compile the kernels. The first time takes seconds; the
// driver keeps the result in a cache on disk.
func (d *Device) load() error {
	text, err := kernels.PTX(d.card.Capability)
	if err != nil {
		return err
	}
	list, err := kernels.List(text)
	if err != nil {
		return err
	}
	image := append([]byte(text), 0) // a C string
	log := make([]byte, 4096)
	options, values := [2]int32{jitErrorLog, jitErrorLogSize}, new([2]uintptr)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&log[0])
	values[0], values[1] = uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))
	module := new(uintptr)
	r := call(d.moduleLoadDataEx, uintptr(unsafe.Pointer(module)), uintptr(unsafe.Pointer(&image[0])), uintptr(len(options)),
		uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0])))
	if r != 0 {
		s, _, _ := strings.Cut(string(log), "\x00")
		err := d.check(r, "compiling the kernels for sm_%d", d.card.Capability)
		if e := (*Error)(nil); errors.As(err, &e) {
			e.Log = strings.Join(strings.Fields(s), " ")
		}
		return err
	}
	d.module = *module
	for _, k := range list {
		if err := d.find(k); err != nil {
			return err
		}
	}
	return nil
}

// find looks a kernel up in the module.
func (d *Device) find(k kernels.Kernel) error {
	if k.ArgBytes > len(d.args.buf) {
		return fmt.Errorf("kernel %s takes %d bytes of arguments, at most %d can be passed", k.Name, k.ArgBytes, len(d.args.buf))
	}
	handle, name := new(uintptr), append([]byte(k.Name), 0)
	if err := d.check(call(d.moduleGetFunction, uintptr(unsafe.Pointer(handle)), d.module, uintptr(unsafe.Pointer(&name[0]))), "finding kernel %s", k.Name); err != nil {
		return err
	}
	d.functions[k.Name] = &function{*handle, k}
	return nil
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// check turns a result into an error. The format is that of what was tried.
func (d *Device) check(r int32, format string, args ...any) error {
	if r == 0 {
		return nil
	}
	err := error(&Error{Op: fmt.Sprintf(format, args...), Code: r})
	if errors.Is(err, gpu.ErrLost) {
		d.lost = err
	}
	return err
}

// Card returns what the driver says of the card.
func (d *Device) Card() Card { return d.card }

// Info describes the card; its free memory is asked for anew.
func (d *Device) Info() gpu.Info {
	_ = d.Do(func() error {
		free, total := new(uint64), new(uint64)
		if d.lost == nil && call(d.memGetInfo, uintptr(unsafe.Pointer(free)), uintptr(unsafe.Pointer(total))) == 0 {
			d.info.Free, d.info.Total = int64(*free), int64(*total)
		}
		return nil
	})
	return d.info
}

// Alloc implements [gpu.Device].
func (d *Device) Alloc(n int64) (b gpu.Buffer, err error) {
	return b, d.Do(func() error {
		if n <= 0 {
			return fmt.Errorf("allocating %d bytes", n)
		}
		if d.lost != nil {
			return d.lost
		}
		at := new(uint64)
		if err := d.check(call(d.memAlloc, uintptr(unsafe.Pointer(at)), uintptr(n)), "allocating %d bytes on the card", n); err != nil {
			return err
		}
		b = gpu.Buffer{Addr: *at, Size: n}
		return nil
	})
}

// Free implements [gpu.Device]. The driver waits for what was launched before.
func (d *Device) Free(b gpu.Buffer) {
	_ = d.Do(func() error {
		if d.lost != nil || b.Addr == 0 {
			return nil // memory went with the context
		}
		return d.check(call(d.memFree, uintptr(b.Addr)), "freeing %d bytes", b.Size)
	})
}

// Kernels returns what the driver's compiler made of each kernel, by name.
func (d *Device) Kernels() (m map[string]Compiled, err error) {
	m = map[string]Compiled{}
	return m, d.Do(func() error {
		for name, f := range d.functions {
			var c Compiled
			for _, a := range []struct {
				which uintptr // of cuda.h
				to    *int
			}{{4, &c.Registers}, {3, &c.Local}, {1, &c.Shared}} {
				v := new(int32)
				if err := d.check(call(d.funcGetAttribute, uintptr(unsafe.Pointer(v)), a.which, f.handle), "asking for the registers of %s", name); err != nil {
					return err
				}
				*a.to = int(*v)
			}
			m[name] = c
		}
		return nil
	})
}

// Close frees all that the Device holds on the card and ends its thread.
func (d *Device) Close() error {
	err := d.Do(func() error {
		var errs []error
		if d.lost == nil && d.stream != 0 {
			errs = append(errs, d.sync())
		}
		if d.lost == nil {
			d.staging.close(d)
			if d.module != 0 {
				errs = append(errs, d.check(call(d.moduleUnload, d.module), "unloading the kernels"))
			}
			if d.stream != 0 {
				errs = append(errs, d.check(call(d.streamDestroy, d.stream), "closing the stream"))
			}
		}
		if d.context != 0 { // of a lost context too: the last release ends it
			r := call(d.primaryCtxRelease, uintptr(d.dev))
			if d.lost == nil {
				errs = append(errs, d.check(r, "leaving the context"))
			}
		}
		return errors.Join(errs...)
	})
	close(d.work)
	d.pin.Unpin()
	return err
}
