package ptx

import (
	"fmt"
	"math/bits"
	"slices"
)

const allLanes = 1<<32 - 1

// block is one block of a launch while it runs.
type block struct {
	k      *kernel
	launch uint32 // number of the launch
	run    uint32 // number of the block among all of the device
	number uint32 // of the block in its grid
	args   []uint64

	barriers uint32 // passed
	shared   []byte
	cells    []cell // one a word of shared memory
	warps    []warp
}

// warp is 32 threads that take the same instructions where their branches agree.
type warp struct {
	block  *block
	number int
	r      []lanes
	groups []group // of threads that are at different places
}

// group is the threads of a warp at one place.
type group struct {
	pc      int
	mask    uint32
	waiting bool // at a barrier or a warp instruction, for others
}

// fault is a panic's value while a block runs; Launch makes an error of it.
type fault struct{ error }

// fail ends the launch with an error that names the thread.
func (w *warp) fail(lane int, text, format string, args ...any) {
	panic(fault{fmt.Errorf("block %d, thread %d: %q: %s", w.block.number, w.number*32+lane, text, fmt.Sprintf(format, args...))})
}

// execute runs the block from start to end: each warp up to a barrier, then all
// on.
func (b *block) execute() {
	for {
		ended, at := 0, -1
		for i := range b.warps {
			w := &b.warps[i]
			w.run()
			if len(w.groups) == 0 {
				ended++
			} else if at < 0 {
				at = w.groups[0].pc
			}
		}
		if ended == len(b.warps) {
			return
		}
		for i := range b.warps {
			w := &b.warps[i]
			if len(w.groups) != 1 || w.groups[0].pc != at || w.groups[0].mask != allLanes {
				w.fail(0, b.k.code[at].text, "barrier that not all threads of the block reach: %d warps have ended", ended)
			}
			w.groups[0] = group{pc: at + 1, mask: allLanes}
		}
		b.barriers++
	}
}

// run takes the warp to its end, or to a barrier with all its threads.
//
// Of groups at different places the one furthest behind goes on, so that they
// meet again where branches join.
func (w *warp) run() {
	for {
		best := -1
		for i, g := range w.groups {
			if !g.waiting && (best < 0 || g.pc < w.groups[best].pc) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		w.step(best)
		w.merge()
	}
	for _, g := range w.groups {
		if in := &w.block.k.code[g.pc]; in.kind == meet || len(w.groups) > 1 {
			w.fail(bits.TrailingZeros32(g.mask), in.text, "only lanes %#08x of the warp come here", g.mask)
		}
	}
}

// merge joins groups at the same place.
func (w *warp) merge() {
	if len(w.groups) < 2 {
		return
	}
	slices.SortFunc(w.groups, func(a, b group) int { return a.pc - b.pc })
	kept := w.groups[:1]
	for _, g := range w.groups[1:] {
		last := &kept[len(kept)-1]
		if g.pc == last.pc {
			last.mask |= g.mask
			last.waiting = false
		} else {
			kept = append(kept, g)
		}
	}
	w.groups = kept
}

// step runs group i up to a place where others may be, a barrier or its end.
func (w *warp) step(i int) {
	code, counts := w.block.k.code, w.block.k.device.counts[w.block.k.Name]
	pc, mask := w.groups[i].pc, w.groups[i].mask
	for first := true; ; first = false {
		in := &code[pc]
		if in.label && !first && len(w.groups) > 1 {
			w.groups[i].pc, w.groups[i].mask = pc, mask
			return
		}
		act := mask
		if in.guard >= 0 {
			for l, v := range w.r[in.guard] {
				if (v != 0) == in.not {
					act &^= 1 << l
				}
			}
		}
		counts[in.op].add(act)
		switch in.kind {
		case plain:
			if act != 0 {
				in.run(w, act)
			}
			pc++
		case branch:
			switch act {
			case mask:
				pc = in.target
			case 0:
				pc++
			default:
				w.groups[i] = group{pc: pc + 1, mask: mask &^ act}
				w.groups = append(w.groups, group{pc: in.target, mask: act})
				return
			}
		case meet:
			if mask != allLanes {
				w.groups[i] = group{pc, mask, true}
				return
			}
			in.run(w, mask)
			pc++
		case barrier:
			w.groups[i] = group{pc, mask, true}
			return
		case exit:
			if mask &^= act; mask == 0 {
				w.groups = slices.Delete(w.groups, i, i+1)
				return
			}
			pc++
		}
	}
}
