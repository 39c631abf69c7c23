// Package gputest has a [gpu.Device] whose kernels are what kernels.k says of them,
// in plain Go: the host side of a backend is tested on it anywhere, at the speed of
// the reference. It says nothing about the kernels themselves; package ptx and the
// fake driver run those.
package gputest

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"npack/gpu"
)

// Device is a card in plain Go. It checks what drivers leave to their callers:
// ranges, freed buffers, sizes of grids.
type Device struct {
	Capability int
	Memory     int64 // bytes
	Launches   map[string]int
	Taken      int64 // bytes that are allocated
	Peak       int64
	// Idle leaves out what kernels compute: for tests of what surrounds them.
	Idle bool
	// Fail, if set, is asked before each call of Alloc, Upload, Download, Copy and
	// Launch, by name, and may give the error to return.
	Fail func(call string) error

	buffers map[uint64][]byte
	last    uint64
	linears map[gpu.Arg][]signs  // what call.planes and
	tables  map[gpu.Arg][][]int8 // call.table made of weights
}

// New returns a card of 1 GiB.
func New(capability int) *Device {
	return &Device{Capability: capability, Memory: 1 << 30, Launches: map[string]int{},
		buffers: map[uint64][]byte{}, linears: map[gpu.Arg][]signs{}, tables: map[gpu.Arg][][]int8{}}
}

// Info implements [gpu.Device].
func (d *Device) Info() gpu.Info {
	return gpu.Info{Name: "plain Go", Driver: "none", Capability: d.Capability, Processors: 1, Total: d.Memory, Free: d.Memory - d.Taken}
}

func (d *Device) fail(call string) error {
	if d.Fail == nil {
		return nil
	}
	return d.Fail(call)
}

// Alloc implements [gpu.Device]. New memory is full of NaNs: what is read before it
// is written shows.
func (d *Device) Alloc(n int64) (gpu.Buffer, error) {
	if err := d.fail("alloc"); err != nil {
		return gpu.Buffer{}, err
	}
	if n < 1 || d.Taken+n > d.Memory {
		return gpu.Buffer{}, fmt.Errorf("%d bytes of %d: %w", n, d.Memory-d.Taken, gpu.ErrMemory)
	}
	d.last += 1 << 40
	b := make([]byte, n)
	for i := range b {
		b[i] = 0xff
	}
	d.buffers[d.last] = b
	d.Taken += n
	d.Peak = max(d.Peak, d.Taken)
	return gpu.Buffer{Addr: d.last, Size: n}, nil
}

// Free implements [gpu.Device].
func (d *Device) Free(b gpu.Buffer) {
	d.changed(b)
	delete(d.buffers, b.Addr)
	d.Taken -= b.Size
}

// Buffers is the number of buffers that were not freed.
func (d *Device) Buffers() int { return len(d.buffers) }

// changed returns the bytes of a buffer, of which nothing else is kept then.
func (d *Device) changed(b gpu.Buffer) []byte {
	maps.DeleteFunc(d.linears, func(a gpu.Arg, _ []signs) bool { return a.Buf == b })
	maps.DeleteFunc(d.tables, func(a gpu.Arg, _ [][]int8) bool { return a.Buf == b })
	return d.at(b)
}

func (d *Device) at(b gpu.Buffer) []byte {
	p, ok := d.buffers[b.Addr]
	if !ok || int64(len(p)) != b.Size {
		panic(fmt.Sprintf("gputest: no buffer %x of %d bytes", b.Addr, b.Size))
	}
	return p
}

// Upload implements [gpu.Device].
func (d *Device) Upload(b gpu.Buffer, offset int64, p []byte) error {
	if err := d.fail("upload"); err != nil {
		return err
	}
	copy(d.changed(b)[offset:][:len(p)], p)
	return nil
}

// Download implements [gpu.Device].
func (d *Device) Download(p []byte, b gpu.Buffer, offset int64) error {
	if err := d.fail("download"); err != nil {
		return err
	}
	copy(p, d.at(b)[offset:][:len(p)])
	return nil
}

// Copy implements [gpu.Device].
func (d *Device) Copy(dst gpu.Buffer, dstOffset int64, src gpu.Buffer, srcOffset, n int64) error {
	if err := d.fail("copy"); err != nil {
		return err
	}
	copy(d.changed(dst)[dstOffset:][:n], d.at(src)[srcOffset:][:n])
	return nil
}

// Launch implements [gpu.Device].
func (d *Device) Launch(l *gpu.Launch) error {
	if err := d.fail("launch"); err != nil {
		return err
	}
	k, ok := table[l.Kernel]
	if !ok {
		return fmt.Errorf("no kernel %q", l.Kernel)
	}
	if len(l.Args) != k.args {
		return fmt.Errorf("kernel %s: %d arguments, want %d", l.Kernel, len(l.Args), k.args)
	}
	for i, g := range l.Grid {
		if g < 1 || i > 0 && g > 65535 {
			return fmt.Errorf("kernel %s: grid %v", l.Kernel, l.Grid)
		}
	}
	d.Launches[l.Kernel]++
	if !d.Idle {
		k.run(&call{d: d, l: l})
	}
	return nil
}

// call is a launch whose arguments are read.
type call struct {
	d *Device
	l *gpu.Launch
}

func (c *call) grid(i int) int     { return int(c.l.Grid[i]) }
func (c *call) num(i int) int      { return int(int32(c.l.Args[i].Val)) }
func (c *call) real(i int) float32 { return math.Float32frombits(uint32(c.l.Args[i].Val)) }
func (c *call) bytes(i int) mem    { a := c.l.Args[i]; return mem(c.d.at(a.Buf)[a.Val:]) }
func (c *call) wantGrid(x, y, z int) {
	c.must(c.l.Grid == [3]uint32{uint32(x), uint32(y), uint32(z)}, "grid")
}
func (c *call) must(ok bool, what string) {
	if !ok {
		panic(fmt.Sprintf("gputest: kernel %s: wrong %s: grid %v, args %v", c.l.Kernel, what, c.l.Grid, c.l.Args))
	}
}

// mem is a device's memory from some place on, indexed in elements of 4 bytes.
type mem []byte

func (m mem) u32(i int) uint32        { return binary.LittleEndian.Uint32(m[4*i:]) }
func (m mem) i32(i int) int           { return int(int32(m.u32(i))) }
func (m mem) f32(i int) float32       { return math.Float32frombits(m.u32(i)) }
func (m mem) setU32(i int, v uint32)  { binary.LittleEndian.PutUint32(m[4*i:], v) }
func (m mem) setF32(i int, v float32) { m.setU32(i, math.Float32bits(v)) }
func (m mem) floats(i, n int) []float32 {
	x := make([]float32, n)
	for j := range x {
		x[j] = m.f32(i + j)
	}
	return x
}

// Recorder is a [Device] that records, and a thread's owner: [gpu.Recorder] and
// [gpu.Owner].
type Recorder struct {
	*Device
	Records, Plays int
	Open           int // recordings that were not closed

	into *Recording
	busy bool
}

// Recording implements [gpu.Recording].
type Recording struct {
	d        *Recorder
	launches []gpu.Launch
}

// Do implements [gpu.Owner].
func (d *Recorder) Do(f func() error) error {
	if d.busy {
		panic("gputest: Do within Do")
	}
	d.busy = true
	defer func() { d.busy = false }()
	return f()
}

// Record implements [gpu.Recorder].
func (d *Recorder) Record(f func() error) (gpu.Recording, error) {
	if err := d.fail("record"); err != nil {
		return nil, err
	}
	r := &Recording{d: d}
	d.into = r
	err := f()
	d.into = nil
	if err != nil {
		return nil, err
	}
	d.Records++
	d.Open++
	return r, nil
}

// Launch implements [gpu.Device].
func (d *Recorder) Launch(l *gpu.Launch) error {
	if !d.busy {
		panic("gputest: a launch outside Do")
	}
	if d.into == nil {
		return d.Device.Launch(l)
	}
	c := *l
	c.Args = slices.Clone(l.Args)
	d.into.launches = append(d.into.launches, c)
	return nil
}

// Play implements [gpu.Recording].
func (r *Recording) Play() error {
	if r.launches == nil {
		panic("gputest: a closed recording is played")
	}
	r.d.Plays++
	for i := range r.launches {
		if err := r.d.Device.Launch(&r.launches[i]); err != nil {
			return err
		}
	}
	return nil
}

// Close implements [gpu.Recording].
func (r *Recording) Close() {
	r.d.Open--
	r.launches = nil
}
