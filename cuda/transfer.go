//go:build gpu && (linux || windows) && (amd64 || arm64)

package cuda

import (
	"fmt"
	"unsafe"

	"npack/gpu"
)

const (
	half  = 8 << 20 // bytes of pinned memory that are filled while the other half is read
	piece = 2 << 20 // of one copy: so that the card need not wait for a whole half
	back  = 1 << 20 // for downloads: the logits of a token
)

// Pinned is how much of the host's memory a [Device] takes, in bytes.
const Pinned = 2*half + back

// staging is the pinned memory: two halves for uploads, and the place of
// downloads.
type staging struct {
	memory unsafe.Pointer // the driver's, not Go's
	read   [2]uintptr     // events: the card has read this half
	cur    int            // the half that is filled
	used   int            // bytes of it
}

func (s *staging) open(d *Device) error {
	p := new(unsafe.Pointer)
	if err := d.check(call(d.memHostAlloc, uintptr(unsafe.Pointer(p)), Pinned, 0), "pinning %d bytes of memory", Pinned); err != nil {
		return err
	}
	s.memory = *p
	const noTiming = 2
	for i := range s.read {
		e := new(uintptr)
		if err := d.check(call(d.eventCreate, uintptr(unsafe.Pointer(e)), noTiming), "making an event"); err != nil {
			return err
		}
		s.read[i] = *e
	}
	return nil
}

func (s *staging) close(d *Device) {
	for _, e := range s.read {
		if e != 0 {
			call(d.eventDestroy, e)
		}
	}
	if s.memory != nil {
		call(d.memFreeHost, uintptr(s.memory))
	}
}

// at returns n bytes of the pinned memory.
func (s *staging) at(offset, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(s.memory, offset)), n)
}

// Upload implements [gpu.Device].
func (d *Device) Upload(b gpu.Buffer, offset int64, p []byte) error {
	if err := within(b, offset, len(p)); err != nil {
		return err
	}
	if d.inside {
		return d.upload(b.Addr+uint64(offset), p)
	}
	return d.Do(func() error { return d.upload(b.Addr+uint64(offset), p) })
}

func (d *Device) upload(to uint64, p []byte) error {
	for len(p) > 0 {
		if d.lost != nil {
			return d.lost
		}
		if d.used == half {
			if err := d.turn(); err != nil {
				return err
			}
		}
		n := min(len(p), piece, half-d.used)
		from := d.staging.at(d.cur*half+d.used, n)
		copy(from, p)
		if err := d.check(d.invoke(d.memcpyHtoDAsync, uintptr(to), uintptr(unsafe.Pointer(&from[0])), uintptr(n), d.stream), "copying %d bytes to the card", n); err != nil {
			return err
		}
		d.used += roundUp(n, 64)
		to, p = to+uint64(n), p[n:]
	}
	return nil
}

// turn goes on to the other half, once the card has read what is in it.
func (d *Device) turn() error {
	if err := d.check(d.invoke(d.eventRecord, d.read[d.cur], d.stream), "marking a copy"); err != nil {
		return err
	}
	d.cur, d.used = 1-d.cur, 0
	return d.check(d.invoke(d.eventSynchronize, d.read[d.cur]), "waiting for a copy to the card (or what was launched before)")
}

// Download implements [gpu.Device].
func (d *Device) Download(p []byte, b gpu.Buffer, offset int64) error {
	if err := within(b, offset, len(p)); err != nil {
		return err
	}
	if d.inside {
		return d.download(p, b.Addr+uint64(offset))
	}
	return d.Do(func() error { return d.download(p, b.Addr+uint64(offset)) })
}

func (d *Device) download(p []byte, from uint64) error {
	for len(p) > 0 {
		if d.lost != nil {
			return d.lost
		}
		n := min(len(p), back)
		to := d.staging.at(2*half, n)
		if err := d.check(d.invoke(d.memcpyDtoHAsync, uintptr(unsafe.Pointer(&to[0])), uintptr(from), uintptr(n), d.stream), "copying %d bytes from the card", n); err != nil {
			return err
		}
		if err := d.sync(); err != nil {
			return err
		}
		copy(p, to)
		from, p = from+uint64(n), p[n:]
	}
	return nil
}

// sync waits for all that was started. Both halves are free then.
func (d *Device) sync() error {
	d.used = 0
	if r := d.invoke(d.streamSynchronize, d.stream); r != 0 {
		return d.check(r, "waiting for the card (CUDA_LAUNCH_BLOCKING=1 makes the failing kernel say its name)")
	}
	return nil
}

// Copy implements [gpu.Device].
func (d *Device) Copy(dst gpu.Buffer, dstOffset int64, src gpu.Buffer, srcOffset, n int64) error {
	if err := within(dst, dstOffset, int(n)); err != nil {
		return err
	}
	if err := within(src, srcOffset, int(n)); err != nil || n == 0 {
		return err
	}
	return d.Do(func() error {
		if d.lost != nil {
			return d.lost
		}
		return d.check(d.invoke(d.memcpyDtoDAsync, uintptr(dst.Addr+uint64(dstOffset)), uintptr(src.Addr+uint64(srcOffset)), uintptr(n), d.stream), "copying %d bytes on the card", n)
	})
}

// within checks that n bytes from offset on lie in b.
func within(b gpu.Buffer, offset int64, n int) error {
	if n < 0 || offset < 0 || offset > b.Size || int64(n) > b.Size-offset {
		return fmt.Errorf("bytes %d to %d of a buffer of %d", offset, offset+int64(n), b.Size)
	}
	return nil
}
