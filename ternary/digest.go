package ternary

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"slices"
)

// Digest is a sha256 over a form of weights that does not depend on how a file
// stores them: the same weights have the same digest in every format. Strides,
// padding and integrity words are left out, because other formats do not carry
// them. Of a tensor that is not valid the digest means nothing.
//
// The bytes of a tensor, all numbers little endian:
//
//	"npack tensor 1\n"
//	u32 kind (1 ternary, 2 int8, 3 vector), u64 rows, u64 cols
//	ternary: bp, bn, br, each rows * ceil(cols/8) bytes;
//	         f32 s_lo[rows], f32 s_hi[rows]; u32 1 and f32 bias[rows], or u32 0
//	int8:    i8 q[rows][cols]; f32 scale[rows]
//	vector:  f32 values[rows]; cols is 1
//
// The bytes of a model:
//
//	"npack model 1\n"
//	u32 arch, n_layers, hidden, n_heads, n_kv_heads, head_dim, rotary_dims,
//	    intermediate, vocab, max_position
//	f32 rms_norm_eps, rope_theta; u32 eok (1 tied, 2 separate)
//	for each tensor in the order of [Model.Tensors]:
//	    u32 length of the name, the name, its digest (32 bytes)
type Digest [sha256.Size]byte

// String returns the digest in hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText returns the digest in hex, for JSON.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// TensorDigest is the digest of one named tensor.
type TensorDigest struct {
	Name   string `json:"name"`
	Digest Digest `json:"sha256"`
}

// Digests are the digests of a model and of all its tensors in file order.
type Digests struct {
	Model   Digest         `json:"model"`
	Tensors []TensorDigest `json:"tensors"`
}

// Digests reads the whole model once, tensors in parallel, and hands what it
// has read to m.Release. The error is [Model.CheckShapes]'s or ctx's; ctx is
// looked at between tensors.
func (m *Model) Digests(ctx context.Context, o WalkOptions) (*Digests, error) {
	if err := m.CheckShapes(); err != nil {
		return nil, err
	}
	d := new(Digests)
	for t := range m.Tensors() {
		d.Tensors = append(d.Tensors, TensorDigest{Name: t.Name})
	}
	var jobs []job
	for t := range m.Tensors() {
		to := &d.Tensors[len(jobs)].Digest
		jobs = append(jobs, job{t.bytes(), func() error {
			h := tensorHash{h: sha256.New(), release: m.release, ctx: ctx}
			if err := h.read(m, t); err != nil {
				return err
			}
			h.h.Sum(to[:0])
			return ctx.Err()
		}})
	}
	if err := runJobs(ctx, jobs, o); err != nil {
		return nil, err
	}
	d.Model = m.digest(d.Tensors)
	return d, nil
}

// Digest returns the digest of one tensor.
func (t *Tensor) Digest() Digest {
	h := tensorHash{h: sha256.New(), release: func([]byte) {}, ctx: context.Background()}
	h.tensor(t)
	return Digest(h.h.Sum(nil))
}

func (m *Model) digest(tensors []TensorDigest) Digest {
	h := sha256.New()
	b := []byte("npack model 1\n")
	u32 := func(v uint32) { b = binary.LittleEndian.AppendUint32(b, v) }
	u32(uint32(m.Arch))
	for _, f := range m.Fields() {
		u32(uint32(f.Value))
	}
	u32(math.Float32bits(m.RMSEps))
	u32(math.Float32bits(m.RopeTheta))
	if m.Tied {
		u32(1)
	} else {
		u32(2)
	}
	for _, t := range tensors {
		u32(uint32(len(t.Name)))
		b = append(b, t.Name...)
		b = append(b, t.Digest[:]...)
	}
	h.Write(b)
	return Digest(h.Sum(nil))
}

// bytes is the size of the tensor's weights, scales and biases in memory.
func (t *Tensor) bytes() int64 {
	switch {
	case t.Ternary != nil:
		w := t.Ternary
		return 3*int64(w.Rows)*int64(w.Stride) + 8*int64(w.Rows) + 4*int64(len(w.Bias))
	case t.Int8 != nil:
		return int64(t.Int8.Rows) * (int64(t.Int8.Stride) + 4)
	}
	return 4 * int64(len(t.Vector))
}

// tensorHash feeds the canonical form to a hash.
type tensorHash struct {
	h       hash.Hash
	buf     []byte
	release func([]byte)
	ctx     context.Context // stops long tables; the digest is then unusable
}

// read hashes a tensor of m, which need not be in memory. Of a matrix, whose
// planes are hashed one after the other, it holds all, of a table some rows.
func (h *tensorHash) read(m *Model, t Tensor) error {
	if m.Rows == nil || t.Vector != nil {
		h.tensor(&t)
		return nil
	}
	var p Part
	if t.Ternary != nil {
		part, err := m.ReadRows(&p, t, 0, t.Ternary.Rows)
		if err == nil {
			h.tensor(&part)
		}
		return err
	}
	w := t.Int8
	h.start(2, w.Rows, w.Cols)
	scale := make([]float32, 0, w.Rows)
	for r0, r1 := range t.Chunks() {
		part, err := m.ReadRows(&p, t, r0, r1)
		if err != nil {
			return err
		}
		h.rows(bytesOf(part.Int8.Q), r1-r0, w.Cols, w.Stride)
		scale = append(scale, part.Int8.Scale...)
		if err := h.ctx.Err(); err != nil {
			return err
		}
	}
	h.floats(scale)
	return nil
}

func (h *tensorHash) tensor(t *Tensor) {
	switch {
	case t.Ternary != nil:
		w := t.Ternary
		h.start(1, w.Rows, w.Cols)
		for _, plane := range [][]byte{w.BP, w.BN, w.BR} {
			h.rows(plane, w.Rows, (w.Cols+7)/8, w.Stride)
		}
		h.floats(w.SLo)
		h.floats(w.SHi)
		if w.Bias == nil {
			h.u32(0)
		} else {
			h.u32(1)
			h.floats(w.Bias)
		}
	case t.Int8 != nil:
		w := t.Int8
		h.start(2, w.Rows, w.Cols)
		h.rows(bytesOf(w.Q), w.Rows, w.Cols, w.Stride)
		h.floats(w.Scale)
	default:
		h.start(3, len(t.Vector), 1)
		h.floats(t.Vector)
	}
}

func (h *tensorHash) start(kind uint32, rows, cols int) {
	b := []byte("npack tensor 1\n")
	b = binary.LittleEndian.AppendUint32(b, kind)
	b = binary.LittleEndian.AppendUint64(b, uint64(rows))
	b = binary.LittleEndian.AppendUint64(b, uint64(cols))
	h.h.Write(b)
}

func (h *tensorHash) u32(v uint32) { h.h.Write(binary.LittleEndian.AppendUint32(nil, v)) }

// rows hashes the first width bytes of every row.
func (h *tensorHash) rows(b []byte, rows, width, stride int) {
	for r0, r1 := range chunks(rows, stride) {
		if h.ctx.Err() != nil {
			return
		}
		part := b[r0*stride : r1*stride]
		if width == stride {
			h.h.Write(part)
		} else {
			h.buf = h.buf[:0]
			for at := 0; at < len(part); at += stride {
				h.buf = append(h.buf, part[at:at+width]...)
			}
			h.h.Write(h.buf)
		}
		h.release(part)
	}
}

func (h *tensorHash) floats(v []float32) {
	for part := range slices.Chunk(v, 4096) {
		h.buf = h.buf[:0]
		for _, f := range part {
			h.buf = binary.LittleEndian.AppendUint32(h.buf, math.Float32bits(f))
		}
		h.h.Write(h.buf)
	}
	h.release(bytesOf(v))
}
