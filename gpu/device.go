// Package gpu runs the forward pass of NUMERICS.md on a device that runs the
// kernels of [npack/gpu/kernels]: it arranges the weights, plans the memory,
// keeps the sequences and turns a pass into launches. What differs between
// drivers is behind [Device]: package cuda is one on NVIDIA's driver, package
// ptx one that interprets the committed kernels without any card.
package gpu

import "errors"

// Device runs the kernels of one card. Its methods are called by one goroutine
// at a time, not always the same one. Launches and copies take effect in the
// order of the calls, as if each ended before the next began.
type Device interface {
	Info() Info
	// Alloc returns n bytes, aligned to 256, whose contents are undefined. It
	// returns an error wrapping [ErrMemory] if the card has no room.
	Alloc(n int64) (Buffer, error)
	// Free gives a buffer back, once all that was launched before has ended.
	Free(b Buffer)
	// Upload copies p to b, from offset on. It may return before the copy ends;
	// p may be changed as soon as it returns.
	Upload(b Buffer, offset int64, p []byte) error
	// Download copies from b to p. It returns when p is filled.
	Download(p []byte, b Buffer, offset int64) error
	// Copy copies n bytes between two buffers, or within one where the ranges
	// do not overlap.
	Copy(dst Buffer, dstOffset int64, src Buffer, srcOffset, n int64) error
	// Launch starts a kernel and may return before it ends. It keeps nothing of l
	// and allocates nothing once a kernel has been launched before.
	Launch(l *Launch) error
}

// Recorder is a [Device] that runs a list of launches at less cost than one by
// one: CUDA graphs.
type Recorder interface {
	Device
	// Record calls f and prepares the launches made in it, in order, without
	// running them. f calls no other method. Buffers named in the launches must
	// outlive the recording.
	Record(f func() error) (Recording, error)
}

// Recording is a list of launches that may be run any number of times.
type Recording interface {
	// Play starts the launches as [Device.Launch] would, in order.
	Play() error
	Close()
}

// Owner is a [Device] whose calls all run on a thread of its own. The methods
// may be called from anywhere, at the cost of a change of threads each; within
// the function given to Do they cost none.
type Owner interface {
	Device
	// Do calls f on the device's thread and returns its error.
	Do(f func() error) error
}

// Info describes a card.
type Info struct {
	Name        string // as the maker calls it
	Driver      string // its version, for reports
	Capability  int    // 10*major + minor of CUDA's compute capability: 70, 80, 89, …
	Processors  int    // multiprocessors: blocks that run at the same time, at the least
	Total, Free int64  // bytes of memory
}

// Buffer is a stretch of a device's memory. The zero Buffer is none.
type Buffer struct {
	Addr uint64 // the device's own name of its first byte
	Size int64  // bytes
}

// Launch is one run of a kernel. Threads per block are fixed in the kernel's
// text.
type Launch struct {
	Kernel string
	Grid   [3]uint32 // blocks
	Args   []Arg     // as the kernel's parameters, in order
}

// Arg is a kernel's argument: a place in a buffer, or a number.
type Arg struct {
	Buf Buffer
	Val uint64 // an offset into Buf in bytes; without Buf the bits of a number, or 0 for a buffer that is absent
}

var (
	// ErrMemory is wrapped when a device has no room for a buffer.
	ErrMemory = errors.New("not enough device memory")
	// ErrLost is wrapped when a device cannot be used any more: a fault ended
	// its context.
	ErrLost = errors.New("device lost")
)
