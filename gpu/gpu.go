package gpu

import (
	"fmt"
	"sync"
)

// Backend runs models on one device. It implements [backend.Backend] and
// [backend.Planner]; its instances are [backend.Ranker]s. Several may be used at
// the same time, by as many goroutines; on the device one waits for the other.
type Backend struct {
	name  string
	limit int64 // bytes that may be allocated; 0: what there is
	info  Info

	mu    sync.Mutex // for all that follows
	dev   Device
	owner Owner    // dev, or nil
	rec   Recorder // dev, or nil
	taken int64    // bytes that are allocated
}

// Options say what a [Backend] may take.
type Options struct {
	// MemoryLimit is the most device memory, in bytes, that all instances
	// together may allocate; 0 means what the card has.
	MemoryLimit int64
	// Unproven leaves out the comparison that New does. It is for devices that
	// compute slowly and are tested otherwise.
	Unproven bool
}

// New returns a backend called name on dev, which it first compares with the
// definition: a device that computes a bit otherwise is refused with an error
// wrapping [ErrDiffers]. The caller closes dev, after all instances.
func New(name string, dev Device, o Options) (*Backend, error) {
	b := &Backend{name: name, limit: o.MemoryLimit, info: dev.Info(), dev: dev}
	b.owner, _ = dev.(Owner)
	b.rec, _ = dev.(Recorder)
	if o.Unproven {
		return b, nil
	}
	if err := b.prove(); err != nil {
		return nil, err
	}
	return b, nil
}

// Name returns the name given to [New].
func (b *Backend) Name() string { return b.name }

// Chunk is the number of prompt tokens that suit one call of Forward.
func (b *Backend) Chunk() int { return maxColumns }

// Info describes the device.
func (b *Backend) Info() Info { return b.info }

// do calls f with the device for itself, on the device's own thread if it has
// one. All uses of the device are in such a function.
func (b *Backend) do(f func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owner != nil {
		return b.owner.Do(f)
	}
	return f()
}

// maxBuffer is the largest buffer in which the kernels' 32-bit indices of words
// reach everything.
const maxBuffer = 4 << 32

// alloc allocates n bytes; nothing for 0.
func (b *Backend) alloc(n int64) (Buffer, error) {
	if n == 0 {
		return Buffer{}, nil
	}
	if n > maxBuffer {
		return Buffer{}, fmt.Errorf("%d bytes in one piece, these kernels take up to %d: %w", n, int64(maxBuffer), ErrMemory)
	}
	if b.limit > 0 && b.taken+n > b.limit {
		return Buffer{}, fmt.Errorf("%d bytes more than the %d that are taken, of %d that may be: %w", n, b.taken, b.limit, ErrMemory)
	}
	buf, err := b.dev.Alloc(n)
	if err != nil {
		return Buffer{}, fmt.Errorf("%d bytes beside %d: %w", n, b.taken, err)
	}
	b.taken += n
	return buf, nil
}

// free gives a buffer back, if it is one, and forgets it.
func (b *Backend) free(buf *Buffer) {
	if buf.Size > 0 {
		b.dev.Free(*buf)
		b.taken -= buf.Size
	}
	*buf = Buffer{}
}

// grow replaces buf by a buffer of n bytes and moves the first used bytes there.
func (b *Backend) grow(buf *Buffer, used, n int64) error {
	if n <= buf.Size {
		return nil
	}
	larger, err := b.alloc(n)
	if err != nil {
		return err
	}
	if used > 0 {
		if err := b.dev.Copy(larger, 0, *buf, 0, used); err != nil {
			b.free(&larger)
			return err
		}
	}
	b.free(buf)
	*buf = larger
	return nil
}
