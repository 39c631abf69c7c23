package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	urfave "github.com/urfave/cli/v2"

	"npack/cpu"
	"npack/cuda"
	"npack/internal/cli"
	"npack/internal/machine"
	"npack/runtime/backend"
)

func infoCommand() *urfave.Command {
	return &urfave.Command{
		Name:        "info",
		Usage:       "show what this machine has and what nrun chooses on it",
		UsageText:   "nrun info [flags]",
		Description: cli.Examples("nrun info", "nrun info --json"),
		Flags:       append(choiceFlags(), jsonFlag()),
		Action:      info,
	}
}

// machineInfo is the JSON form. Fields are only ever added.
type machineInfo struct {
	Version  string          `json:"version"`
	Numerics int             `json:"numerics"`
	Go       string          `json:"go"`
	OS       string          `json:"os"`
	Arch     string          `json:"arch"`
	CPU      machine.CPU     `json:"cpu"`
	Threads  machine.Threads `json:"threads"`
	Memory   machine.Memory  `json:"memory"`
	Backends []backendInfo   `json:"backends"`
	Kernels  []cpu.Kernels   `json:"kernels"`         // of backend cpu, best first
	Cards    []cardInfo      `json:"cards,omitempty"` // of backend cuda
	Chosen   string          `json:"chosen"`
	Why      string          `json:"why"`
}

type backendInfo struct {
	Name   string `json:"name"`
	About  string `json:"about"`
	Usable bool   `json:"usable"`
	Why    string `json:"why,omitempty"` // it is not usable
}

// cardInfo is a card, and whether it can be trusted.
type cardInfo struct {
	cuda.Card
	Free   int64  `json:"memory_free"`
	Usable bool   `json:"usable"`
	Why    string `json:"why"` // what was proven, or why it cannot be used
}

// cardInfos opens each card and proves it, unless that was done; none if there is no
// driver.
func cardInfos() (list []cardInfo) {
	cards, _ := cuda.Cards() // the backend's row says why there are none
	for _, c := range cards {
		i := cardInfo{Card: c}
		if b, err := openCUDA(choice{device: c.Index}); err != nil {
			i.Why = err.Error()
		} else {
			i.Free, i.Usable, i.Why = b.(*card).Info().Free, true, "proven just now: its arithmetic and small models' logits equal the reference's, bit for bit"
		}
		list = append(list, i)
	}
	return list
}

// String is a card's row: what it is and what is known of it.
func (i *cardInfo) String() string {
	s := fmt.Sprintf("%s, %d multiprocessors, driver CUDA %s", &i.Card, i.Processors, i.Driver)
	if i.Usable {
		return s + fmt.Sprintf(", %s free; %s", cli.Size(i.Free), i.Why)
	}
	return s + "; refused: " + i.Why
}

// notable are the instruction sets that kernels of this kind of work are
// written for; the JSON form lists all that the processor has.
var notable = []string{"SSE4", "SSSE3", "AVX", "AVX2", "FMA3", "F16C", "POPCNT", "BMI2", "GFNI", "VAES",
	"AVX512F", "AVX512BW", "AVX512VL", "AVX512VBMI", "AVX512VNNI", "AVX512VPOPCNTDQ", "AVX512FP16", "AVXVNNI", "AVXVNNIINT8", "AMXINT8", "AMXTILE",
	"ASIMD", "ASIMDDP", "ASIMDHP", "FPHP", "SVE", "SVE2", "I8MM"}

func info(c *urfave.Context) error {
	if _, err := cli.Positionals(c, 0, 0); err != nil {
		return err
	}
	chosen, err := chooseBackend(c)
	if err != nil {
		return err
	}
	out := machineInfo{
		Version: cli.Build(), Numerics: backend.NumericsVersion,
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		CPU: machine.ReadCPU(), Threads: machine.ReadThreads(), Memory: machine.ReadMemory(),
		Kernels: cpu.KernelSets(),
		Cards:   cardInfos(), Chosen: chosen.name, Why: chosen.why,
	}
	for _, e := range backends {
		i := backendInfo{Name: e.name, About: e.about, Usable: true}
		if e.name != chosen.name {
			if _, err := e.make(choice{device: cuda.Any}); err != nil {
				i.Usable, i.Why = false, err.Error()
			}
		}
		out.Backends = append(out.Backends, i)
	}
	if c.Bool("json") {
		return cli.JSON(c.App.Writer, out)
	}
	tw := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("nrun", "%s", out.Version)
	row("numerics", "version %d: equal versions give equal logits, bit for bit", out.Numerics)
	row("processor", "%s, %d logical, %d cores", orUnknown(out.CPU.Model), out.CPU.Logical, out.CPU.Physical)
	var features []string
	for _, f := range notable {
		if slices.Contains(out.CPU.Features, f) {
			features = append(features, f)
		}
	}
	row("features", "%s", orUnknown(strings.Join(features, " ")))
	row("threads", "%d: %s", out.Threads.Use, out.Threads.Why)
	if out.Memory.Available > 0 {
		row("memory", "%s free %s", cli.Size(out.Memory.Available), memoryNote(out.Memory))
	} else {
		row("memory", "unknown")
	}
	for _, i := range out.Backends {
		state := i.About
		if !i.Usable {
			state += "; not on this machine: " + i.Why
		}
		if i.Name == out.Chosen {
			state += "; chosen: " + out.Why
		}
		row("backend", "%s: %s", i.Name, state)
	}
	for _, k := range out.Cards {
		row("card", "%s", &k)
	}
	used := ""
	if chosen.name == "cpu" {
		used = kernelsOf(chosen.backend)
	}
	for _, k := range out.Kernels {
		state := k.About
		if !k.Present {
			state += "; this processor lacks them"
		}
		if k.ZeroCopy {
			state += "; with --zero-copy, too"
		}
		if k.Name == used {
			state += "; chosen"
			if c.Bool("zero-copy") {
				state += ", zero-copy"
			}
		}
		row("cpu kernels", "%s: %s", k.Name, state)
	}
	return tw.Flush()
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
