package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"time"
)

// A foreign template is a program from the network. It may loop for ever, fill
// the memory or overflow the stack, and Go can neither stop a goroutine nor
// recover from the last two. It therefore runs in a child process: this very
// executable, started again with the mark below, which reads one request from
// its standard input, answers on its standard output, watches itself, and
// never reaches main. Templates that own code knows do not come here.

const (
	sandboxEnv = "NPACK_TEMPLATE_PROCESS"
	sandboxArg = "(chat template)"
)

const (
	sandboxTime   = 800 * time.Millisecond // for compiling and all renderings
	sandboxTicks  = 50                     // and at least this many looks at the clock, for busy machines
	sandboxMemory = 48 << 20               // bytes, plus sandboxPerByte for each byte of the request
	sandboxStack  = 16 << 20               // bytes
	sandboxKill   = 15 * time.Second       // the parent's patience, if the child's watch fails
	// JSON, its tree, the engine's values and the outputs hold a request's
	// texts several times over.
	sandboxPerByte = 40
)

type sandboxRequest struct {
	Template string            `json:"template"`
	Contexts []json.RawMessage `json:"contexts"`
}

type sandboxReply struct {
	Outputs []string `json:"outputs,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// init is where the child takes its own way. It stands here, not in a main, so
// that every program and test that links this package has it: a child that
// went on into some main would do that program's work a second time.
func init() {
	if os.Getenv(sandboxEnv) != "" && len(os.Args) == 2 && os.Args[1] == sandboxArg {
		sandboxMain(os.Stdin, os.Stdout)
		os.Exit(0)
	}
}

// sandboxMain is all that the child does.
func sandboxMain(in io.Reader, out io.Writer) {
	debug.SetMaxStack(sandboxStack)
	raw, err := io.ReadAll(in)
	if err != nil {
		os.Exit(1)
	}
	var once sync.Once // the watch may wake up while the outputs are on their way
	reply := func(r sandboxReply) {
		once.Do(func() {
			if json.NewEncoder(out).Encode(r) != nil {
				os.Exit(1)
			}
		})
	}
	if runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2) // the watch must run beside a loop that never yields
	}
	go func() {
		why := sandboxWatch(uint64(sandboxMemory + sandboxPerByte*len(raw)))
		reply(sandboxReply{Error: why})
		os.Exit(0)
	}()
	var req sandboxRequest
	if err := json.Unmarshal(raw, &req); err != nil {
		reply(sandboxReply{Error: err.Error()})
		return
	}
	outputs, err := runJinja(req.Template, req.Contexts)
	if err != nil {
		reply(sandboxReply{Error: err.Error()})
		return
	}
	reply(sandboxReply{Outputs: outputs})
}

// sandboxWatch returns when the process has used more than its share.
func sandboxWatch(memory uint64) string {
	use := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	start := time.Now()
	for ticks := 0; ; ticks++ {
		metrics.Read(use)
		if held := use[0].Value.Uint64() - use[1].Value.Uint64(); held > memory {
			return fmt.Sprintf("it needs more than %d MiB of memory", memory>>20)
		}
		if ticks >= sandboxTicks && time.Since(start) > sandboxTime {
			return fmt.Sprintf("it runs for more than %v", sandboxTime)
		}
		time.Sleep(time.Millisecond)
	}
}

// sandboxRun renders the template with each context in a child process.
func sandboxRun(ctx context.Context, req sandboxRequest) ([]string, error) {
	in, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	exe := "/proc/self/exe" // still right after the file was replaced
	if runtime.GOOS != "linux" {
		if exe, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("%w: cannot start a process for it: %w", ErrTemplate, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sandboxKill)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, sandboxArg)
	cmd.Env = []string{sandboxEnv + "=1",
		"SYSTEMROOT=" + os.Getenv("SYSTEMROOT"), // Windows starts nothing without it
		"GORACE=atexit_sleep_ms=0",              // the race detector would wait a second
	}
	cmd.Stdin = bytes.NewReader(in)
	stdout := &limitedBuffer{left: sandboxMemory + sandboxPerByte*len(in)}
	stderr := &limitedBuffer{left: 4 << 10}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	runErr := cmd.Run()
	if err := context.Cause(ctx); errors.Is(err, context.Canceled) {
		return nil, err
	}
	var reply sandboxReply
	if err := json.Unmarshal(stdout.Bytes(), &reply); err != nil {
		if why, ok := fatalError(stderr.String()); ok {
			return nil, fmt.Errorf("%w: it ended its process: %s", ErrTemplate, why)
		}
		return nil, fmt.Errorf("%w: its process gave no answer: %v", ErrTemplate, runErr)
	}
	if reply.Error != "" {
		return nil, fmt.Errorf("%w: %s", ErrTemplate, oneLine(reply.Error))
	}
	if len(reply.Outputs) != len(req.Contexts) {
		return nil, fmt.Errorf("%w: %d renderings, expected %d", ErrTemplate, len(reply.Outputs), len(req.Contexts))
	}
	return reply.Outputs, nil
}

// fatalError finds the Go runtime's last words: "stack overflow", "out of
// memory".
func fatalError(stderr string) (string, bool) {
	_, after, ok := strings.Cut(stderr, "fatal error: ")
	line, _, _ := strings.Cut(after, "\n")
	return oneLine(line), ok
}

// oneLine makes a text that a template chose fit for a terminal.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || 0x7f <= r && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return s
}

// limitedBuffer keeps the first bytes written to it and drops the rest.
type limitedBuffer struct {
	bytes.Buffer
	left int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.Buffer.Write(p[:n])
	return len(p), nil
}
