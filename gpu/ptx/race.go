package ptx

// cell remembers who touched a word of 4 bytes. What it tells holds for one launch
// (global memory) or one block (shared memory), which tag names.
type cell struct {
	tag            uint32
	flags          uint8
	wTid, rTid     uint16 // thread + 1 of the last writer and of the readers since; 0 is none
	wBlock, rBlock uint32
	wWhen, rWhen   uint32 // barriers that its block had passed
}

const (
	readOnce   = 1 << iota // by ld.global.nc, which may see old values
	atomically             // written by red

	several = 1<<16 - 1 // threads
	blocks  = 1<<32 - 1 // more than one block
)

// toucher is a thread at one moment.
type toucher struct {
	tag   uint32 // launch or block
	tid   uint16 // + 1
	block uint32
	when  uint32
}

// read notes that t reads the word and returns what is wrong with that, or "".
// Two threads are ordered by a barrier of their block, and by nothing else.
func (c *cell) read(t *toucher, nc bool) string {
	if c.tag != t.tag {
		*c = cell{tag: t.tag}
	}
	if c.wTid != 0 {
		switch {
		case nc:
			return "ld.global.nc of memory that this launch writes"
		case c.flags&atomically != 0:
			return "race: read of what others change atomically"
		case c.wBlock != t.block:
			return "race: read of what another block writes"
		case c.wTid != t.tid && c.wWhen == t.when:
			return "race: read of what another thread writes, with no barrier between"
		}
	}
	if nc {
		c.flags |= readOnce
	}
	switch {
	case c.rTid == 0:
		c.rTid, c.rBlock = t.tid, t.block
	case c.rBlock != t.block:
		c.rBlock = blocks
	case c.rTid != t.tid:
		c.rTid = several
	}
	c.rWhen = t.when
	return ""
}

// write is the like of read for a store, or for an atomic change.
func (c *cell) write(t *toucher, atomic bool) string {
	if c.tag != t.tag {
		*c = cell{tag: t.tag}
	}
	switch {
	case c.flags&readOnce != 0:
		return "store to memory that this launch reads by ld.global.nc"
	case atomic && c.wTid != 0 && c.flags&atomically != 0 && c.rTid == 0:
		return ""
	case c.wTid != 0 && (c.flags&atomically != 0) != atomic:
		return "race: store and atomic change"
	case c.wTid != 0 && c.wBlock != t.block:
		return "race: store to what another block writes"
	case c.wTid != 0 && c.wTid != t.tid && c.wWhen == t.when:
		return "race: store to what another thread writes, with no barrier between"
	case c.rTid != 0 && c.rBlock != t.block:
		return "race: store to what another block reads"
	case c.rTid != 0 && c.rTid != t.tid && c.rWhen == t.when:
		return "race: store to what another thread reads, with no barrier between"
	}
	c.wTid, c.wBlock, c.wWhen, c.rTid = t.tid, t.block, t.when, 0
	if atomic {
		c.flags |= atomically
	}
	return ""
}
