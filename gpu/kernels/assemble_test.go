package kernels_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"npack/gpu/kernels"
)

var update = flag.Bool("update", false, "rewrite testdata/sass.json, or the tables of docs/gpu.md")

// TestReproduced builds the PTX texts from kernels.k and compares them with those
// committed.
func TestReproduced(t *testing.T) {
	if _, err := exec.LookPath("clang-19"); err != nil {
		t.Skip("SKIP: clang-19 is not installed (Debian: clang-19)")
	}
	dir := t.TempDir()
	if out, err := exec.Command("./build.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, capability := range []int{70, 80} {
		want, err := kernels.PTX(capability)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("kernels_%d.ptx", capability)))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("kernels_%d.ptx is not what kernels.k gives: make kernels", capability)
		}
	}
}

// tool finds a program of NVIDIA's wheels (nvidia-cuda-nvcc-cu12, nvidia-cuda-nvdisasm)
// beside the Python of NPACK_PYTHON, or skips the test.
func tool(t *testing.T, name string) string {
	t.Helper()
	python := os.Getenv("NPACK_PYTHON")
	found, _ := filepath.Glob(filepath.Join(filepath.Dir(python), "../lib/python*/site-packages/nvidia/*/bin", name))
	if python == "" || len(found) == 0 {
		t.Skipf("SKIP: %s is not installed (PyPI: nvidia-cuda-nvcc-cu12, nvidia-cuda-nvdisasm; NPACK_PYTHON names the Python)", name)
	}
	return found[0]
}

// sass is what an assembled kernel is made of.
type sass struct {
	Instructions int
	Registers    int
	Matrix       int `json:",omitempty"` // IMMA and BMMA
	Dot          int `json:",omitempty"` // IDP.4A
	Loop         int `json:",omitempty"` // instructions of the loop that has these: of a tile of weights, in tern_bits of two
}

// readSASS returns testdata/sass.json: kernels by processor.
func readSASS(t testing.TB) (list map[string]map[string]sass) {
	golden, err := os.ReadFile("testdata/sass.json")
	if err == nil {
		err = json.Unmarshal(golden, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

var (
	ptxasEntry = regexp.MustCompile(`(?s)Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers`)
	sassText   = regexp.MustCompile(`\.text\.(\w+):`)
	sassLabel  = regexp.MustCompile(`^\.(L_x?_?\d+):`)
	sassBack   = regexp.MustCompile("BRA.*`\\(\\.(L_x?_?\\d+)\\)")
	sassOp     = regexp.MustCompile(`/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)`)
)

// TestAssemble has NVIDIA's assembler translate the texts for each generation of cards:
// no register is spilled and no product is fused with a sum. The size of kernels and
// the use of matrix units is held against testdata/sass.json.
func TestAssemble(t *testing.T) {
	ptxas := tool(t, "ptxas")
	want := readSASS(t)
	got := map[string]map[string]sass{}
	for _, arch := range []int{70, 75, 80, 86, 87, 89, 90, 100, 103, 120} {
		if testing.Short() && arch != 75 && arch != 89 && arch != 90 {
			continue
		}
		name := fmt.Sprintf("sm_%d", arch)
		text, err := kernels.PTX(arch)
		if err != nil {
			t.Fatal(err)
		}
		in, out := filepath.Join(t.TempDir(), "in.ptx"), filepath.Join(t.TempDir(), "out.cubin")
		if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		log, err := exec.Command(ptxas, "-v", "-arch="+name, in, "-o", out).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, log)
		}
		kernels := map[string]sass{}
		for _, m := range ptxasEntry.FindAllStringSubmatch(string(log), -1) {
			if m[2] != "0" || m[3] != "0" {
				t.Errorf("%s: %s spills %s bytes", name, m[1], m[2])
			}
			n, _ := strconv.Atoi(m[4])
			kernels[m[1]] = sass{Registers: n}
		}
		if _, ok := want[name]; ok || *update && (arch == 80 || arch == 89 || arch == 90 || arch == 120) {
			got[name] = disassemble(t, name, out, kernels)
		}
	}
	if *update {
		b, err := json.MarshalIndent(got, "", "\t")
		if err == nil {
			err = os.WriteFile("testdata/sass.json", append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	for arch, list := range got {
		for k, s := range list {
			w := want[arch][k]
			if s.Matrix != w.Matrix || s.Dot != w.Dot || s.Loop > w.Loop || s.Instructions > w.Instructions || s.Registers > w.Registers {
				t.Errorf("%s: %s is %+v, was %+v (go test ./gpu/kernels -run Assemble -update, if that is better)", arch, k, s, w)
			}
		}
	}
}

// disassemble counts the instructions of an assembled text.
func disassemble(t *testing.T, arch, cubin string, list map[string]sass) map[string]sass {
	t.Helper()
	cmd := exec.Command(tool(t, "nvdisasm"), "-c", cubin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("nvdisasm: %v\n%s", err, stderr.String())
	}
	at := sassText.FindAllStringSubmatchIndex(string(text), -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		name := string(text[m[2]:m[3]])
		s, ok := list[name]
		if !ok {
			continue
		}
		labels, heavy := map[string]int{}, []int{} // places, counted in instructions
		for line := range strings.Lines(string(text[m[1]:end])) {
			if l := sassLabel.FindStringSubmatch(line); l != nil {
				labels[l[1]] = s.Instructions
			}
			op := sassOp.FindStringSubmatch(line)
			if op == nil {
				continue
			}
			switch op, _, _ := strings.Cut(op[1], "."); op {
			case "IMMA", "BMMA":
				s.Matrix++
				heavy = append(heavy, s.Instructions)
			case "IDP":
				s.Dot++
				heavy = append(heavy, s.Instructions)
			case "FFMA", "DFMA":
				t.Errorf("%s: %s fuses a product with a sum", arch, name)
			}
			s.Instructions++
			if b := sassBack.FindStringSubmatch(line); b != nil && len(heavy) > 1 {
				at, ok := labels[b[1]]
				if n := s.Instructions - at; ok && at <= heavy[0] && (s.Loop == 0 || n < s.Loop) {
					s.Loop = n
				}
			}
		}
		list[name] = s
	}
	return list
}
