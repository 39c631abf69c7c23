package tokenizer

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
)

// Both tables are open-addressed, at most two thirds full, and hashed with a
// seed of this process, so that no file can be written to make them slow.

// tableBits returns the logarithm of the size of a table for n entries.
func tableBits(n int) uint { return uint(bits.Len(uint(n + n/2 + 1))) }

// pairTable finds what two neighbouring tokens merge to.
type pairTable struct {
	slots []pairSlot
	shift uint
	seed  uint64
}

type pairSlot struct {
	key uint64 // left+1 in the upper half, right in the lower; 0 is empty
	to  mergeTo
}

// mergeTo is a merge as seen from its pair: the rank in the upper half, the
// resulting token in the lower. The smaller one goes first.
type mergeTo uint64

const noMerge mergeTo = 1<<64 - 1

func (m mergeTo) rank() uint32  { return uint32(m >> 32) }
func (m mergeTo) result() int32 { return int32(uint32(m)) }

func pairKey(left, right int32) uint64 { return uint64(left+1)<<32 | uint64(right) }

func (p *pairTable) slot(key uint64) uint64 {
	hi, lo := bits.Mul64(key^p.seed, 0x9e3779b97f4a7c15)
	return (hi ^ lo) >> p.shift
}

// fill makes the table. It returns an error if a pair stands twice: the
// reference would take the later, others the earlier.
func (p *pairTable) fill(merges []merge) error {
	n := tableBits(len(merges))
	p.slots, p.shift, p.seed = make([]pairSlot, 1<<n), 64-n, rand.Uint64()
	mask := uint64(len(p.slots) - 1)
	for rank, m := range merges {
		key := pairKey(m.left, m.right)
		i := p.slot(key)
		for p.slots[i].key != 0 {
			if p.slots[i].key == key {
				return fmt.Errorf("merge %d: same pair as merge %d: %w", rank, p.slots[i].to.rank(), ErrCorrupt)
			}
			i = (i + 1) & mask
		}
		p.slots[i] = pairSlot{key, mergeTo(rank)<<32 | mergeTo(m.result)}
	}
	return nil
}

// find returns what left and right merge to, or noMerge.
func (p *pairTable) find(left, right int32) mergeTo {
	key := pairKey(left, right)
	mask := uint64(len(p.slots) - 1)
	for i := p.slot(key); ; i = (i + 1) & mask {
		s := &p.slots[i]
		if s.key == key {
			return s.to
		}
		if s.key == 0 {
			return noMerge
		}
	}
}

// nameTable finds a token by its bytes. A slot is id+1 below and some bits of
// the hash above, which spare nearly all looks at tokens that are others; 0 is
// empty. The bytes are the tokenizer's.
type nameTable struct {
	slots []uint32
	shift uint
	seed  maphash.Seed
}

const idBits = 20

func (h *nameTable) fill(t *Tokenizer) error {
	n := tableBits(len(t.ends))
	h.slots, h.shift, h.seed = make([]uint32, 1<<n), 64-n, maphash.MakeSeed()
	for id := range int32(len(t.ends)) {
		name := t.bytesOf(id)
		if name == "" {
			continue
		}
		slot, tag := h.look(t, name)
		if found := h.slots[slot]; found != 0 {
			return fmt.Errorf("token %q: ids %d and %d: %w, expected one id", name, found&(1<<idBits-1)-1, id, ErrCorrupt)
		}
		h.slots[slot] = tag | uint32(id+1)
	}
	return nil
}

// look returns the slot that holds name, or the empty one where it would go.
func (h *nameTable) look(t *Tokenizer, name string) (slot int, tag uint32) {
	hash := maphash.String(h.seed, name)
	tag = uint32(hash) &^ (1<<idBits - 1)
	mask := len(h.slots) - 1
	for slot = int(hash >> h.shift); ; slot = (slot + 1) & mask {
		s := h.slots[slot]
		if s == 0 || s&^(1<<idBits-1) == tag && t.bytesOf(int32(s&(1<<idBits-1))-1) == name {
			return slot, tag
		}
	}
}

func (h *nameTable) find(t *Tokenizer, name string) (int32, bool) {
	slot, _ := h.look(t, name)
	s := h.slots[slot]
	return int32(s&(1<<idBits-1)) - 1, s != 0
}
