package ptx

import (
	"encoding/binary"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// allocation is a buffer of device memory.
type allocation struct {
	base  uint64
	data  []byte
	cells []cell // one a word
}

// poison fills memory that nothing was written to: a NaN as f32, -1 as an integer.
const poison = 0xff

// spacing separates buffers, so that an index past an end meets no other.
const spacing = 1 << 20

func (d *Device) alloc(n int64) *allocation {
	a := &allocation{base: d.next, data: make([]byte, n), cells: make([]cell, (n+3)/4)}
	for i := range a.data {
		a.data[i] = poison
	}
	d.next += (uint64(n)+spacing+255)&^255 + 256
	d.memory = append(d.memory, a) // bases rise
	return a
}

// find returns the allocation that holds n bytes from at on, or nil.
func (d *Device) find(at, n uint64) *allocation {
	i := sort.Search(len(d.memory), func(i int) bool { return d.memory[i].base > at }) - 1
	if i < 0 || at-d.memory[i].base+n > uint64(len(d.memory[i].data)) {
		return nil
	}
	return d.memory[i]
}

// access is a decoded ld, st or red.
type access struct {
	k      *kernel
	text   string
	load   bool
	nc     bool
	shared bool
	reduce func(old, v uint32) uint32 // red
	size   uint64                     // bytes of an element
	wide   bool                       // registers of 64 bits
	ext    func(uint64) uint64        // a loaded element as a register
	base   int
	disp   uint64
	regs   []int // one an element

	last *allocation // that was touched: likely the next one's
}

// memory decodes ld, st and red.
func (k *kernel) memory(s *statement) (func(w *warp, m uint32), error) {
	a := &access{k: k, text: s.text, load: s.op[0] == "ld"}
	ty, count, space := s.op[len(s.op)-1], 1, ""
	var how string
	for _, p := range s.op[1 : len(s.op)-1] {
		switch p {
		case "param", "global", "shared":
			space = p
		case "nc":
			a.nc = true
		case "v2":
			count = 2
		case "v4":
			count = 4
		case "max", "min":
			how = p
		case "cs": // a hint
		default:
			return nil, fmt.Errorf("unknown .%s", p)
		}
	}
	as := cut(ty)
	if as == nil || len(s.args) != 2 || ty == "pred" {
		return nil, fmt.Errorf("unknown form")
	}
	a.size = width(ty) / 8
	ref, regs := s.args[0], s.args[1]
	if a.load {
		ref, regs = regs, ref
	}
	ref = strings.Trim(ref, "[]")
	if space == "param" {
		return k.parameter(ref, regs, a.size)
	}
	a.shared = space == "shared"
	if space == "" {
		return nil, fmt.Errorf("generic address")
	}
	if s.op[0] == "red" {
		if a.reduce = reduction(how, ty); a.reduce == nil || a.shared || count != 1 {
			return nil, fmt.Errorf("unknown reduction")
		}
	}
	name, disp, plus := strings.Cut(ref, "+")
	var err error
	if plus {
		if a.disp, err = number(disp); err != nil {
			return nil, err
		}
	}
	if a.base, err = k.operand(name); err != nil {
		return nil, err
	}
	for _, r := range strings.Split(strings.Trim(regs, "{}"), ",") {
		i, err := k.operand(strings.TrimSpace(r))
		if err == nil && a.load {
			_, err = k.register(strings.TrimSpace(r))
		}
		if err != nil {
			return nil, err
		}
		a.regs = append(a.regs, i)
		a.wide = k.program.regs[strings.TrimSpace(r)]
	}
	low := cut("b32")
	if a.wide { // a signed element fills all of the register
		low = cut("b64")
	}
	a.ext = func(v uint64) uint64 { return low(as(v)) }
	if len(a.regs) != count || a.size < 4 && !a.load {
		return nil, fmt.Errorf("unknown form")
	}
	k.accesses = append(k.accesses, a)
	return a.run, nil
}

func reduction(how, ty string) func(old, v uint32) uint32 {
	switch how + "." + ty {
	case "max.u32":
		return func(old, v uint32) uint32 { return max(old, v) }
	case "min.s32":
		return func(old, v uint32) uint32 { return uint32(min(int32(old), int32(v))) }
	}
	return nil
}

// parameter decodes ld.param. Parameters are named name_param_i.
func (k *kernel) parameter(ref, reg string, size uint64) (func(w *warp, m uint32), error) {
	i, err := strconv.Atoi(strings.TrimPrefix(ref, k.Name+"_param_"))
	if err != nil || i < 0 || i >= len(k.Params) || k.Params[i].Size != int(size) {
		return nil, fmt.Errorf("no such parameter")
	}
	d, err := k.register(reg)
	if err != nil {
		return nil, err
	}
	return func(w *warp, m uint32) {
		for l := range w.r[d] {
			if m>>l&1 != 0 {
				w.r[d][l] = w.block.args[i]
			}
		}
	}, nil
}

func (a *access) run(w *warp, m uint32) {
	b := w.block
	who := toucher{tag: b.launch, block: b.number, when: b.barriers}
	if a.shared {
		who.tag = b.run
	}
	total := a.size * uint64(len(a.regs))
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		at := w.r[a.base][l] + a.disp
		if at%total != 0 {
			w.fail(l, a.text, "address %#x is not a multiple of %d", at, total)
		}
		var data []byte
		var cells []cell
		if a.shared {
			if at+total > uint64(len(b.shared)) {
				w.fail(l, a.text, "address %d of %d bytes of shared memory", at, len(b.shared))
			}
			data, cells = b.shared[at:], b.cells[at/4:]
		} else {
			if a.last == nil || at < a.last.base || at-a.last.base+total > uint64(len(a.last.data)) {
				if a.last = a.k.device.find(at, total); a.last == nil {
					w.fail(l, a.text, "address %#x is in no buffer%s", at, a.k.device.nearest(at))
				}
			}
			at -= a.last.base
			data, cells = a.last.data[at:], a.last.cells[at/4:]
		}
		who.tid = uint16(w.number*32 + l + 1)
		for i := range (total + 3) / 4 {
			c, wrong := &cells[i], ""
			switch {
			case a.load && a.shared && (c.tag != who.tag || c.wTid == 0):
				wrong = "shared memory that nothing was written to"
			case a.load:
				wrong = c.read(&who, a.nc)
			default:
				wrong = c.write(&who, a.reduce != nil)
			}
			if wrong != "" {
				w.fail(l, a.text, "%s", wrong)
			}
		}
		for i, r := range a.regs {
			p := data[uint64(i)*a.size:]
			v := &w.r[r][l]
			switch {
			case a.reduce != nil:
				binary.LittleEndian.PutUint32(p, a.reduce(binary.LittleEndian.Uint32(p), uint32(*v)))
			case a.load && a.size == 4 && !a.wide:
				*v = uint64(binary.LittleEndian.Uint32(p))
			case a.load:
				*v = a.ext(element(p, a.size))
			case a.size == 4:
				binary.LittleEndian.PutUint32(p, uint32(*v))
			default:
				binary.LittleEndian.PutUint64(p, *v)
			}
		}
	}
}

// element reads size bytes.
func element(p []byte, size uint64) uint64 {
	switch size {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(p))
	case 4:
		return uint64(binary.LittleEndian.Uint32(p))
	}
	return binary.LittleEndian.Uint64(p)
}

// nearest says where an address lies, for messages.
func (d *Device) nearest(at uint64) string {
	i := sort.Search(len(d.memory), func(i int) bool { return d.memory[i].base > at }) - 1
	if i < 0 {
		return ""
	}
	return fmt.Sprintf(": %d bytes behind the start of one of %d bytes", at-d.memory[i].base, len(d.memory[i].data))
}
