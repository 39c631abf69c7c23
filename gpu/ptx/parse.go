package ptx

import (
	"fmt"
	"strconv"
	"strings"

	"npack/gpu/kernels"
)

// statement is one instruction of the text, taken apart.
type statement struct {
	text   string   // as written, for messages
	guard  string   // predicate register, or ""
	not    bool     // run where the guard is false
	op     []string // "ld", "global", "nc", "v4", "u32"
	args   []string // operands, groups {…} and addresses […] in one piece each
	labels []string // that stand before it
}

// program is a kernel's text before it is decoded.
type program struct {
	kernels.Kernel
	regs   map[string]bool // all declared registers; true if 64 bits wide
	shared map[string]int  // offsets of shared arrays
	size   int             // bytes of shared memory
	code   []statement
}

// parse reads the kernels of a PTX text.
func parse(src string) ([]*program, error) {
	list, err := kernels.List(src)
	if err != nil {
		return nil, err
	}
	var ps []*program
	for _, k := range list {
		_, body, ok := strings.Cut(src, ".entry "+k.Name+"(")
		if ok {
			_, body, ok = strings.Cut(body, "\n{")
		}
		if ok {
			body, _, ok = strings.Cut(body, "\n}")
		}
		if !ok {
			return nil, fmt.Errorf("kernel %s: no body", k.Name)
		}
		p := &program{Kernel: k, regs: map[string]bool{}, shared: map[string]int{}}
		if err := p.read(body); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", k.Name, err)
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// read splits a body at its semicolons. Braces at the start of a statement are
// scopes of inline assembly, whose registers get names of their own.
func (p *program) read(body string) error {
	var labels []string
	scope, depth := "", 0 // prefix of local names; braces within a statement
	local := map[string]string{}
	scopes, from := 0, 0
	for i := 0; i < len(body); i++ {
		start := strings.TrimSpace(body[from:i]) == ""
		switch c := body[i]; {
		case c == '/' && strings.HasPrefix(body[i:], "//"):
			end := strings.IndexByte(body[i:], '\n')
			if end < 0 {
				end = len(body) - i
			}
			body = body[:i] + body[i+end:]
			i--
		case c == '{' && start:
			scopes++
			scope, from = fmt.Sprintf("scope%d.", scopes), i+1
		case c == '}' && start:
			scope, from = "", i+1
			clear(local)
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ':' && depth == 0:
			labels = append(labels, strings.TrimSpace(body[from:i]))
			from = i + 1
		case c == ';':
			text := strings.Join(strings.Fields(body[from:i]), " ")
			from = i + 1
			if text == "" {
				continue
			}
			if text[0] == '.' {
				if err := p.declare(text, scope, local); err != nil {
					return err
				}
				continue
			}
			s := split(text, local)
			s.labels, labels = labels, nil
			p.code = append(p.code, s)
		}
	}
	if len(labels) > 0 || strings.TrimSpace(body[from:]) != "" {
		return fmt.Errorf("text behind the last statement")
	}
	return nil
}

// declare notes registers ".reg .b32 %r<9>" or ".reg .b16 h", and shared arrays
// ".shared .align 4 .b8 name[96]".
func (p *program) declare(text, scope string, local map[string]string) error {
	f := strings.Fields(text)
	switch {
	case f[0] == ".reg" && len(f) == 3:
		wide := strings.HasSuffix(f[1], "64")
		name, count, many := strings.Cut(strings.TrimSuffix(f[2], ">"), "<")
		if !many {
			local[name] = scope + name
			p.regs[scope+name] = wide
			return nil
		}
		n, err := strconv.Atoi(count)
		if err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
		for i := range n {
			p.regs[name+strconv.Itoa(i)] = wide
		}
		return nil
	case f[0] == ".shared" && len(f) == 5 && f[1] == ".align" && f[3] == ".b8":
		name, count, _ := strings.Cut(strings.TrimSuffix(f[4], "]"), "[")
		align, err := strconv.Atoi(f[2])
		n, err2 := strconv.Atoi(count)
		if err != nil || err2 != nil || align < 1 {
			return fmt.Errorf("%q: a shared array of bytes was expected", text)
		}
		p.size = (p.size + align - 1) / align * align
		p.shared[name] = p.size
		p.size += n
		return nil
	case f[0] == ".pragma":
		return nil
	}
	return fmt.Errorf("%q: unknown directive", text)
}

// split takes an instruction apart.
func split(text string, local map[string]string) statement {
	s := statement{text: text}
	if text[0] == '@' {
		s.guard, text, _ = strings.Cut(text[1:], " ")
		s.guard, s.not = strings.CutPrefix(s.guard, "!")
	}
	op, rest, _ := strings.Cut(text, " ")
	s.op = strings.Split(op, ".")
	depth, from := 0, 0
	add := func(a string) {
		if a = strings.TrimSpace(a); a != "" {
			if name, ok := local[a]; ok {
				a = name
			}
			s.args = append(s.args, a)
		}
	}
	for i, c := range rest {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				add(rest[from:i])
				from = i + 1
			}
		}
	}
	add(rest[from:])
	return s
}
