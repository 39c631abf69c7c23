package race

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// patience is how long a program that was told to end may take.
const patience = 5 * time.Second

// process is an external program that runs beside us.
type process struct {
	argv []string
	said tail
	done chan struct{} // closed when it has ended
	err  error         // why, once done
	stop context.CancelFunc
}

func startProcess(argv []string) (*process, error) {
	ctx, stop := context.WithCancel(context.Background())
	p := &process{argv: argv, done: make(chan struct{}), stop: stop}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &p.said, &p.said
	politely(cmd)
	if err := cmd.Start(); err != nil {
		stop()
		return nil, err
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// politely makes a command end by a signal that it can act on, where there is
// one, before it is killed.
func politely(cmd *exec.Cmd) {
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(os.Interrupt); err != nil { // Windows cannot
			return cmd.Process.Kill()
		}
		return nil
	}
	cmd.WaitDelay = patience
}

// ended says how the program ended, if it did within a moment.
func (p *process) ended(wait time.Duration) error {
	select {
	case <-p.done:
	case <-time.After(wait):
		return nil
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%q ended: %s%s", p.argv[0], how, p.said.quote())
}

// close ends the program and waits for it.
func (p *process) close() {
	p.stop()
	<-p.done
}

// tail keeps the last of what a program says.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 600

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b[max(0, len(b)-tailBytes):]...)
	t.b = t.b[max(0, len(t.b)-tailBytes):]
	return len(b), nil
}

// quote returns the last of it for an error.
func (t *tail) quote() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.TrimSpace(string(t.b))
	if s == "" {
		return ""
	}
	return fmt.Sprintf("; it said last: %s", s)
}

// freePort returns a port that nobody listened at a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
