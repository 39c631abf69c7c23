// Package ptx runs PTX, the text that ships in [npack/gpu/kernels], in plain Go: a
// [gpu.Device] for machines without a card. It is strict where a card is silent.
// These end a launch with an error that names the block, thread and instruction:
//
//   - an address outside all buffers, or not a multiple of the access's size;
//   - a race: two threads touch a word, one of them writes, and no barrier of their
//     block lies between; two blocks of a launch do;
//   - ld.global.nc of a word that the launch writes;
//   - shared memory that nothing was written to;
//   - a barrier that not all threads of a block reach, a warp instruction that not all
//     lanes of a warp reach.
//
// f32 arithmetic that does not say how it rounds is refused when the text is read:
// ptxas may contract or flush it. Subnormal numbers are counted, and can be flushed to
// zero, as some cards do; a forward pass of NUMERICS.md meets none.
//
// What it cannot show: faults of ptxas or of the driver's compiler, timing, and what
// the memory of a card does beyond these rules.
package ptx

import (
	"fmt"
	"math/bits"
	"slices"

	"npack/gpu"
	"npack/gpu/kernels"
)

// Device is memory and a module of kernels. It runs one launch at a time.
type Device struct {
	// Subnormals counts subnormal operands and results of f32 operations. With Flush
	// they become zero.
	Subnormals int64
	Flush      bool

	capability int
	kernels    map[string]*kernel
	counts     map[string][]Count // by kernel, of its ops
	memory     []*allocation      // in the order of their addresses
	next       uint64             // address of the next buffer
	launches   uint32
	blocks     uint32 // run so far
}

// Count is how often an instruction was carried out.
type Count struct {
	Op      string // "ld.global.nc.v4.u32"
	Warps   int64
	Threads int64
}

func (c *Count) add(mask uint32) {
	c.Warps++
	c.Threads += int64(bits.OnesCount32(mask))
}

// New returns a device with the kernels for a compute capability (70, 80, …).
func New(capability int) (*Device, error) {
	text, err := kernels.PTX(capability)
	if err != nil {
		return nil, err
	}
	d, err := Load(text)
	if err == nil {
		d.capability = capability
	}
	return d, err
}

// Load returns a device with the kernels of a text. It refuses instructions that it
// does not know.
func Load(text string) (*Device, error) {
	programs, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("ptx: %w", err)
	}
	d := &Device{kernels: map[string]*kernel{}, counts: map[string][]Count{}, next: 0x7f0000000000}
	for _, p := range programs {
		k, err := d.decode(p)
		if err != nil {
			return nil, fmt.Errorf("ptx: %w", err)
		}
		d.kernels[p.Name] = k
		for _, op := range k.ops {
			d.counts[p.Name] = append(d.counts[p.Name], Count{Op: op})
		}
	}
	return d, nil
}

// Counts returns what a kernel carried out so far, the most frequent first.
func (d *Device) Counts(kernel string) []Count {
	c := slices.Clone(d.counts[kernel])
	slices.SortStableFunc(c, func(a, b Count) int { return int(b.Threads - a.Threads) })
	return c
}

// Info implements [gpu.Device].
func (d *Device) Info() gpu.Info {
	const memory = 8 << 30
	return gpu.Info{Name: "PTX interpreter", Driver: "none", Capability: d.capability, Processors: 1, Total: memory, Free: memory}
}

// Alloc implements [gpu.Device]. The contents are garbage, as a card's are.
func (d *Device) Alloc(n int64) (gpu.Buffer, error) {
	if n < 0 || n > 1<<32 {
		return gpu.Buffer{}, fmt.Errorf("ptx: %d bytes: %w", n, gpu.ErrMemory)
	}
	return gpu.Buffer{Addr: d.alloc(n).base, Size: n}, nil
}

// Free implements [gpu.Device].
func (d *Device) Free(b gpu.Buffer) {
	d.memory = slices.DeleteFunc(d.memory, func(a *allocation) bool { return a.base == b.Addr })
	for _, k := range d.kernels {
		for _, a := range k.accesses {
			a.last = nil
		}
	}
}

// bytes returns n bytes of a buffer from an offset on.
func (d *Device) bytes(b gpu.Buffer, offset, n int64) ([]byte, error) {
	a := d.find(b.Addr, 0)
	if a == nil || a.base != b.Addr || offset < 0 || n < 0 || offset > int64(len(a.data))-n {
		return nil, fmt.Errorf("ptx: %d bytes from %d on are not in a buffer of %d", n, offset, b.Size)
	}
	return a.data[offset : offset+n], nil
}

// Upload implements [gpu.Device].
func (d *Device) Upload(b gpu.Buffer, offset int64, p []byte) error {
	to, err := d.bytes(b, offset, int64(len(p)))
	copy(to, p)
	return err
}

// Download implements [gpu.Device].
func (d *Device) Download(p []byte, b gpu.Buffer, offset int64) error {
	from, err := d.bytes(b, offset, int64(len(p)))
	copy(p, from)
	return err
}

// Copy implements [gpu.Device].
func (d *Device) Copy(dst gpu.Buffer, dstOffset int64, src gpu.Buffer, srcOffset, n int64) error {
	to, err := d.bytes(dst, dstOffset, n)
	if err != nil {
		return err
	}
	from, err := d.bytes(src, srcOffset, n)
	copy(to, from)
	return err
}

// Launch implements [gpu.Device]. It runs the grid, block by block, to its end.
func (d *Device) Launch(l *gpu.Launch) (err error) {
	k := d.kernels[l.Kernel]
	if k == nil {
		return fmt.Errorf("ptx: no kernel %q", l.Kernel)
	}
	if len(l.Args) != len(k.Params) {
		return fmt.Errorf("ptx: %s takes %d arguments, got %d", l.Kernel, len(k.Params), len(l.Args))
	}
	args := make([]uint64, len(l.Args))
	for i, a := range l.Args {
		pointer, buffer := k.Params[i].Kind == kernels.Pointer, a.Buf != gpu.Buffer{}
		switch {
		case pointer && buffer:
			args[i] = a.Buf.Addr + a.Val
		case pointer != buffer && !(pointer && a.Val == 0):
			return fmt.Errorf("ptx: %s: argument %d is a buffer where a number is due, or a number where a buffer is", l.Kernel, i)
		default:
			args[i] = uint64(uint32(a.Val))
		}
	}
	if l.Grid[0] < 1 || l.Grid[1] < 1 || l.Grid[2] < 1 || l.Grid[1] > 65535 || l.Grid[2] > 65535 {
		return fmt.Errorf("ptx: %s: a grid of %v blocks", l.Kernel, l.Grid)
	}
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(fault)
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("ptx: %s: %w", l.Kernel, f.error)
		}
	}()
	d.launches++
	b := k.newBlock(d.launches, args)
	for z := range l.Grid[2] {
		for y := range l.Grid[1] {
			for x := range l.Grid[0] {
				b.start(x, y, z, (z*l.Grid[1]+y)*l.Grid[0]+x)
				b.execute()
			}
		}
	}
	return nil
}

// newBlock returns a block of the kernel, for one launch.
func (k *kernel) newBlock(launch uint32, args []uint64) *block {
	b := &block{k: k, launch: launch, args: args, shared: make([]byte, k.size), cells: make([]cell, (k.size+3)/4), warps: make([]warp, k.Threads/32)}
	for i := range b.warps {
		w := &b.warps[i]
		*w = warp{block: b, number: i, r: make([]lanes, k.regs)}
		for v, r := range k.consts {
			for l := range w.r[r] {
				w.r[r][l] = v
			}
		}
		for l := range w.r[regTid] {
			w.r[regTid][l] = uint64(i*32 + l)
		}
	}
	return b
}

// start makes b the block at x, y, z of its grid.
func (b *block) start(x, y, z, number uint32) {
	d := b.k.device
	d.blocks++
	b.run, b.number, b.barriers = d.blocks, number, 0
	for i := range b.warps {
		w := &b.warps[i]
		for l := range 32 {
			w.r[regBlockX][l], w.r[regBlockY][l], w.r[regBlockZ][l] = uint64(x), uint64(y), uint64(z)
		}
		w.groups = append(w.groups[:0], group{mask: allLanes})
	}
}
