package tokenizer

import (
	"sync"
	"unicode"
)

// class is what the pre-tokenizer needs to know of a character.
type class uint8

const (
	other   class = iota // none of the below
	letter               // \p{L}
	number               // \p{N}
	space                // \s but not a newline: Unicode White_Space
	newline              // \r or \n
)

// Letters and numbers of Unicode 16 that Go's Unicode 15 does not have. The
// reference's regular expressions (Oniguruma in tokenizers 0.23.3) know them.
// TestClasses compares all code points with the reference.
var (
	letters16 = &unicode.RangeTable{
		R16: []unicode.Range16{
			{0x1c89, 0x1c8a, 1}, {0xa7cb, 0xa7cd, 1}, {0xa7da, 0xa7dc, 1},
		},
		R32: []unicode.Range32{
			{0x105c0, 0x105f3, 1}, {0x10d4a, 0x10d65, 1}, {0x10d6f, 0x10d85, 1},
			{0x10ec2, 0x10ec4, 1}, {0x11380, 0x11389, 1}, {0x1138b, 0x1138b, 1},
			{0x1138e, 0x1138e, 1}, {0x11390, 0x113b5, 1}, {0x113b7, 0x113b7, 1},
			{0x113d1, 0x113d1, 1}, {0x113d3, 0x113d3, 1}, {0x11bc0, 0x11be0, 1},
			{0x13460, 0x143fa, 1}, {0x16100, 0x1611d, 1}, {0x16d40, 0x16d6c, 1},
			{0x18cff, 0x18cff, 1}, {0x1e5d0, 0x1e5ed, 1}, {0x1e5f0, 0x1e5f0, 1},
			{0x2ebf0, 0x2ee5d, 1},
		},
	}
	numbers16 = &unicode.RangeTable{
		R32: []unicode.Range32{
			{0x10d40, 0x10d49, 1}, {0x116d0, 0x116e3, 1}, {0x11bf0, 0x11bf9, 1},
			{0x16130, 0x16139, 1}, {0x16d70, 0x16d79, 1}, {0x1ccf0, 0x1ccf9, 1},
			{0x1e5f1, 0x1e5fa, 1},
		},
	}
)

func slowClass(r rune) class {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case unicode.In(r, unicode.L, letters16):
		return letter
	case unicode.In(r, unicode.N, numbers16):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// lowPlanes holds the class of each character below its length, which is all
// but rare ideographs: the search in Go's range tables costs more than all
// else in the scanner.
var lowPlanes = sync.OnceValue(func() *[1 << 17]class {
	t := new([1 << 17]class)
	fill := func(tab *unicode.RangeTable, c class) {
		for _, g := range tab.R16 {
			for r := uint32(g.Lo); r <= uint32(g.Hi); r += uint32(g.Stride) {
				t[r] = c
			}
		}
		for _, g := range tab.R32 {
			for r := g.Lo; r <= g.Hi && r < uint32(len(t)); r += g.Stride {
				t[r] = c
			}
		}
	}
	fill(unicode.L, letter)
	fill(letters16, letter)
	fill(unicode.N, number)
	fill(numbers16, number)
	fill(unicode.White_Space, space)
	t['\r'], t['\n'] = newline, newline
	return t
})
