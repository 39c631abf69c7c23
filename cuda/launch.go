//go:build gpu && (linux || windows) && (amd64 || arm64)

package cuda

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"npack/gpu"
	"npack/gpu/kernels"
)

// Launch implements [gpu.Device].
func (d *Device) Launch(l *gpu.Launch) error {
	if d.inside {
		return d.launch(l)
	}
	return d.ask(request{l: l})
}

// launch runs on the owner's thread.
func (d *Device) launch(l *gpu.Launch) error {
	if d.lost != nil {
		return d.lost
	}
	f := d.functions[l.Kernel]
	if f == nil {
		return fmt.Errorf("no kernel %q for sm_%d", l.Kernel, d.card.Capability)
	}
	for i, n := range l.Grid {
		if n == 0 || n > d.maxGrid[i] {
			return fmt.Errorf("kernel %s: a grid of %d blocks, the card takes 1 to %d", l.Kernel, l.Grid, d.maxGrid)
		}
	}
	if err := d.args.pack(f, l); err != nil {
		return err
	}
	r := d.invoke(d.launchKernel, f.handle, uintptr(l.Grid[0]), uintptr(l.Grid[1]), uintptr(l.Grid[2]), uintptr(f.Threads), 1, 1,
		0, d.stream, 0, uintptr(unsafe.Pointer(&d.args.extra)))
	if r != 0 {
		return d.check(r, "launching kernel %s", l.Kernel)
	}
	return nil
}

// pack lays the arguments of l out as the PTX declares them.
func (a *arguments) pack(f *function, l *gpu.Launch) error {
	if len(l.Args) != len(f.Params) {
		return fmt.Errorf("kernel %s: %d arguments, it takes %d", f.Name, len(l.Args), len(f.Params))
	}
	for i := range l.Args {
		arg, p := &l.Args[i], &f.Params[i]
		v, pointer := arg.Val, p.Kind == kernels.Pointer
		switch {
		case arg.Buf.Addr != 0 && (!pointer || v >= uint64(arg.Buf.Size)):
			return fmt.Errorf("kernel %s: argument %d: byte %d of a buffer of %d", f.Name, i, v, arg.Buf.Size)
		case arg.Buf.Addr != 0:
			v += arg.Buf.Addr
		case pointer && v != 0:
			return fmt.Errorf("kernel %s: argument %d: a number for a buffer", f.Name, i)
		}
		if pointer {
			binary.LittleEndian.PutUint64(a.buf[p.Offset:], v)
		} else {
			binary.LittleEndian.PutUint32(a.buf[p.Offset:], uint32(v))
		}
	}
	a.size = uint64(f.ArgBytes)
	return nil
}

// recording is a CUDA graph.
type recording struct {
	d    *Device
	exec uintptr
}

// Record implements [gpu.Recorder]: what f launches is captured from the stream.
// The driver copies the arguments.
func (d *Device) Record(f func() error) (r gpu.Recording, err error) {
	return r, d.Do(func() error {
		if d.lost != nil {
			return d.lost
		}
		r, err = d.record(f)
		return err
	})
}

func (d *Device) record(f func() error) (gpu.Recording, error) {
	// Of this thread: calls of others are not looked at.
	const threadLocal = 1
	if err := d.check(call(d.streamBeginCapture, d.stream, threadLocal), "recording launches"); err != nil {
		return nil, err
	}
	err := f()
	graph := new(uintptr)
	if r := call(d.streamEndCapture, d.stream, uintptr(unsafe.Pointer(graph))); r != 0 && err == nil {
		err = d.check(r, "recording launches")
	}
	if *graph != 0 {
		defer call(d.graphDestroy, *graph)
	}
	if err != nil {
		return nil, err
	}
	exec := new(uintptr)
	if err := d.check(call(d.graphInstantiate, uintptr(unsafe.Pointer(exec)), *graph, 0), "preparing a recorded pass"); err != nil {
		return nil, err
	}
	return &recording{d, *exec}, nil
}

// Play implements [gpu.Recording].
func (r *recording) Play() error {
	if r.d.inside {
		return r.play()
	}
	return r.d.Do(r.play)
}

func (r *recording) play() error {
	if r.d.lost != nil {
		return r.d.lost
	}
	return r.d.check(r.d.invoke(r.d.graphLaunch, r.exec, r.d.stream), "launching a recorded pass")
}

// Close implements [gpu.Recording].
func (r *recording) Close() {
	_ = r.d.Do(func() error {
		if r.d.lost == nil {
			call(r.d.graphExecDestroy, r.exec)
		}
		return nil
	})
}
