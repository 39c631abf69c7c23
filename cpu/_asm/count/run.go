package main

import (
	"fmt"
	"strconv"
	"strings"
)

// function is the instructions of one, and where its labels are among them.
type function struct {
	code   []instruction
	labels map[string]int
}

type instruction struct {
	name     string
	operands []string
}

// args are the arguments that counters come from; the others count as 0.
type args map[string]int

// parse adds the functions of an assembly file by name.
func parse(text string, functions map[string]*function) {
	var f *function
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "//")
		line = strings.TrimSpace(line)
		name, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || line[0] == '#' || name == "DATA" || name == "GLOBL":
		case name == "TEXT":
			f = &function{labels: map[string]int{}}
			functions[strings.TrimPrefix(rest[:strings.Index(rest, "(")], "·")] = f
		case strings.HasSuffix(line, ":"):
			f.labels[strings.TrimSuffix(line, ":")] = len(f.code)
		default:
			f.code = append(f.code, instruction{name, strings.Split(strings.TrimSpace(rest), ", ")})
		}
	}
}

// run returns how many instructions a call executes. Only what general registers hold
// is followed; an instruction that might change one in an unknown way is an error.
func (f *function) run(a args) (count int, err error) {
	regs, flags := map[string]int{}, 0
	value := func(operand string) int {
		if n, ok := strings.CutPrefix(operand, "$"); ok {
			v, bad := strconv.ParseInt(n, 0, 64)
			if bad != nil {
				err = bad
			}
			return int(v)
		}
		if name, _, ok := strings.Cut(operand, "+"); ok {
			return a[name]
		}
		return regs[operand]
	}
	for at := 0; err == nil; {
		i := f.code[at]
		at++
		count++
		last := i.operands[len(i.operands)-1]
		memory := strings.Contains(last, "(")
		result := func(v int) { flags, regs[last] = v, v }
		switch i.name {
		case "RET":
			return count, nil
		case "MOVQ", "MOVL":
			if !memory {
				regs[last] = value(i.operands[0])
			}
		case "LEAQ":
			delete(regs, last) // an address
		case "ADDQ":
			if !memory {
				result(value(last) + value(i.operands[0]))
			}
		case "SUBQ":
			result(value(last) - value(i.operands[0]))
		case "DECQ":
			result(value(last) - 1)
		case "ANDQ":
			result(value(last) & value(i.operands[0]))
		case "SHLQ":
			result(value(last) << value(i.operands[0]))
		case "SHRQ":
			result(value(last) >> value(i.operands[0]))
		case "IMULQ":
			result(value(last) * value(i.operands[0]))
		case "IMUL3Q", "IMUL3L":
			result(value(i.operands[0]) * value(i.operands[1]))
		case "CMPQ":
			flags = value(i.operands[0]) - value(last)
		case "TESTQ":
			flags = value(i.operands[0]) & value(last)
		case "CMOVQLT":
			if flags < 0 {
				regs[last] = value(i.operands[0])
			}
		case "JMP", "JNZ", "JZ", "JLT", "JGE":
			if i.name == "JMP" || i.name == "JNZ" && flags != 0 || i.name == "JZ" && flags == 0 || i.name == "JLT" && flags < 0 || i.name == "JGE" && flags >= 0 {
				at = f.labels[last]
			}
		default:
			if i.name[0] != 'V' && i.name != "KMOVQ" && i.name != "PREFETCHT0" && i.name != "LONG" {
				return 0, fmt.Errorf("what does %s %s do?", i.name, strings.Join(i.operands, ", "))
			}
		}
	}
	return 0, err
}
