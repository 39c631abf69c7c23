package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// kind says how an instruction moves a warp on.
type kind uint8

const (
	plain   kind = iota // each lane for itself
	branch              // lanes whose guard holds go on at target
	barrier             // waits for all threads of the block
	meet                // waits for all lanes of the warp
	exit
)

// instr is a decoded instruction. run carries it out for the lanes of m.
type instr struct {
	text   string
	op     int  // index into kernel.ops, for counting
	guard  int  // predicate register, or -1
	not    bool // run where the guard is false
	kind   kind
	target int  // of a branch
	label  bool // branches lead here
	run    func(w *warp, m uint32)
}

// lanes holds a register of the 32 threads of a warp. Values narrower than 64 bits
// have zeros above; predicates are 0 or 1.
type lanes [32]uint64

// kernel is a decoded kernel.
type kernel struct {
	*program
	code []instr
	ops  []string // names that instr.op counts by: "ld.global.v4.u32"

	regs   int            // registers, with constants and special ones behind those of the text
	consts map[uint64]int // value to register
	names  map[string]int // register of the text, or special one
	device *Device

	accesses []*access
}

// Special registers, the first of every kernel.
const (
	regTid = iota
	regBlockX
	regBlockY
	regBlockZ
	firstReg
)

// decode makes a kernel of a program.
func (d *Device) decode(p *program) (*kernel, error) {
	k := &kernel{program: p, device: d, regs: firstReg, consts: map[uint64]int{}, names: map[string]int{
		"%tid.x": regTid, "%ctaid.x": regBlockX, "%ctaid.y": regBlockY, "%ctaid.z": regBlockZ,
	}}
	labels := map[string]int{}
	for i, s := range p.code {
		for _, l := range s.labels {
			labels[l] = i
		}
	}
	opIndex := map[string]int{}
	for _, s := range p.code {
		in, err := k.instruction(&s, labels)
		if err != nil {
			return nil, fmt.Errorf("kernel %s: %q: %w", p.Name, s.text, err)
		}
		name := strings.Join(s.op, ".")
		if _, ok := opIndex[name]; !ok {
			opIndex[name] = len(k.ops)
			k.ops = append(k.ops, name)
		}
		in.op = opIndex[name]
		k.code = append(k.code, in)
	}
	for i := range k.code {
		if k.code[i].kind == branch {
			k.code[k.code[i].target].label = true
		}
	}
	if n := len(k.code); n == 0 || k.code[n-1].kind != exit && k.code[n-1].kind != branch {
		return nil, fmt.Errorf("kernel %s: it does not end with ret", p.Name)
	}
	return k, nil
}

// instruction decodes one statement.
func (k *kernel) instruction(s *statement, labels map[string]int) (in instr, err error) {
	in = instr{text: s.text, guard: -1, not: s.not}
	if s.guard != "" {
		if in.guard, err = k.register(s.guard); err != nil {
			return in, err
		}
	}
	want := func(n int) bool {
		if len(s.args) != n && err == nil {
			err = fmt.Errorf("%d operands, %d expected", len(s.args), n)
		}
		return err == nil
	}
	switch s.op[0] {
	case "ret", "exit":
		in.kind = exit
	case "bra":
		in.kind = branch
		if want(1) {
			at, ok := labels[s.args[0]]
			if !ok {
				return in, fmt.Errorf("no label")
			}
			in.target = at
		}
	case "bar":
		in.kind = barrier
		if len(s.op) != 2 || s.op[1] != "sync" || len(s.args) != 1 || s.args[0] != "0" || in.guard >= 0 {
			err = fmt.Errorf("only bar.sync 0 without a condition")
		}
	case "shfl", "vote", "mma":
		in.kind = meet
		if in.guard >= 0 {
			return in, fmt.Errorf("a warp instruction with a condition")
		}
		in.run, err = k.warpOp(s)
	case "ld", "st", "red":
		in.run, err = k.memory(s)
	default:
		var f func(a, b, c uint64) uint64
		var n int
		if f, n, err = k.alu(s.op); err == nil && want(n+1) {
			in.run, err = k.plain(s.args, f)
		}
	}
	return in, err
}

// plain returns an instruction that gives each lane f of its operands.
func (k *kernel) plain(args []string, f func(a, b, c uint64) uint64) (func(*warp, uint32), error) {
	var r [4]int // result and operands; what is missing is register 0
	for i, a := range args {
		var err error
		if r[i], err = k.operand(a); err != nil {
			return nil, err
		}
	}
	if _, err := k.register(args[0]); err != nil {
		return nil, err
	}
	return func(w *warp, m uint32) {
		d, a, b, c := &w.r[r[0]], &w.r[r[1]], &w.r[r[2]], &w.r[r[3]]
		if m == allLanes {
			for i := range d {
				d[i] = f(a[i], b[i], c[i])
			}
			return
		}
		for i := range d {
			if m>>i&1 != 0 {
				d[i] = f(a[i], b[i], c[i])
			}
		}
	}, nil
}

// register returns the index of a register of the text.
func (k *kernel) register(name string) (int, error) {
	if _, ok := k.program.regs[name]; !ok {
		return 0, fmt.Errorf("no register %q", name)
	}
	r, ok := k.names[name]
	if !ok {
		r = k.regs
		k.names[name] = r
		k.regs++
	}
	return r, nil
}

// operand returns the index of a register that holds what s names: a register,
// a special register, a shared array's address or a number.
func (k *kernel) operand(s string) (int, error) {
	if r, ok := k.names[s]; ok {
		return r, nil
	}
	if at, ok := k.shared[s]; ok {
		return k.constant(uint64(at)), nil
	}
	if strings.HasPrefix(s, "%") || strings.HasPrefix(s, "scope") {
		return k.register(s)
	}
	v, err := number(s)
	return k.constant(v), err
}

// constant returns the register that holds v in all lanes.
func (k *kernel) constant(v uint64) int {
	r, ok := k.consts[v]
	if !ok {
		r = k.regs
		k.consts[v] = r
		k.regs++
	}
	return r
}

// number reads an integer, or 0f and the bits of a float32 in hex.
func number(s string) (uint64, error) {
	if hex, ok := strings.CutPrefix(s, "0f"); ok {
		return strconv.ParseUint(hex, 16, 32)
	}
	if v, err := strconv.ParseInt(s, 0, 64); err == nil {
		return uint64(v), nil
	}
	return strconv.ParseUint(s, 0, 64)
}
