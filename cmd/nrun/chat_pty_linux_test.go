package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a program on a pseudo-terminal of its own.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	mu     sync.Mutex
	shown  bytes.Buffer
	done   chan struct{} // closed when the program has closed the terminal
}

// onTerminal starts nrun there. Where the system lends no terminals it skips.
func onTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIP: no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("SKIP: no pseudo-terminal: %v", err)
	}
	n, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skipf("SKIP: no pseudo-terminal: %v", err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIP: no pseudo-terminal: %v", err)
	}
	defer slave.Close()
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 200}); err != nil {
		t.Fatal(err)
	}
	exe, err := exec.LookPath("nrun") // testscript put it there
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, master: master, done: make(chan struct{})}
	x.cmd = exec.Command(exe, args...)
	x.cmd.Env = append(os.Environ(), append([]string{"TERM=xterm", "NO_COLOR=", "XDG_CACHE_HOME=" + t.TempDir()}, env...)...)
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.cmd.Process.Kill() })
	go func() {
		defer close(x.done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			x.mu.Lock()
			x.shown.Write(buf[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return x
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown.String()
}

// typed sends keys and waits until something new that holds want is shown.
func (x *terminal) typed(keys, want string) {
	x.t.Helper()
	before := len(x.text())
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
	for range 1500 { // half a minute, for busy machines
		if strings.Contains(x.text()[before:], want) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	x.t.Fatalf("after %q: no %q in %q", keys, want, x.text()[before:])
}

// ends waits for the program's end.
func (x *terminal) ends(code int) {
	x.t.Helper()
	err := x.cmd.Wait()
	<-x.done
	if got := x.cmd.ProcessState.ExitCode(); got != code {
		x.t.Errorf("exit code %d, %v, expected %d; it showed %q", got, err, code, x.text())
	}
}

// TestChatTerminal: Ctrl-C ends an answer and keeps the chat, clears a line at
// the prompt, and Ctrl-D leaves.
func TestChatTerminal(t *testing.T) {
	x := onTerminal(t, nil, "chat", "--temperature", "0")
	x.typed("", "/help lists commands")
	x.typed("Tell me a story about a fox.\r", "A Lion")
	x.typed("\x03", "stopped")
	x.typed("/stats\r", "answers:  1\r\n") // the chat is still there
	x.typed("half a line\x03", "^C")
	x.typed("\x03", "Ctrl-D or /exit leaves the chat")
	x.typed("/undo\r", "took back: Tell me a story about a fox.")
	x.typed("\x1b[200~/sys\ttem\n\x1b[201~\r", "unknown command \"/sys\"") // a paste is one line
	x.typed("\x1b[A\x1b[A\r", "nothing to take back")                      // the line before the last, from history
	x.typed("/hel\t\r", "this list")
	if !strings.Contains(x.text(), dim) {
		t.Error("remarks are not dim")
	}
	x.typed("\x04", "")
	x.ends(0)
}

// TestChatTerminalPlain: NO_COLOR and TERM=dumb are obeyed, and a signal ends
// the chat at the prompt.
func TestChatTerminalPlain(t *testing.T) {
	x := onTerminal(t, []string{"TERM=dumb"}, "chat", "--temperature", "0", "-n", "2")
	x.typed("", "> ")
	x.typed("Hello!\n", "Good day\r\ncut off at -n 2 tokens\r\n> ")
	x.typed("half\x03", "Ctrl-D or /exit leaves the chat\r\n> ")
	x.typed("\x04", "")
	x.ends(0)
	if strings.Contains(x.text(), "\x1b") {
		t.Errorf("escape codes with TERM=dumb: %q", x.text())
	}

	x = onTerminal(t, []string{"NO_COLOR=1"}, "chat", "--temperature", "0", "-n", "2")
	x.typed("Hello!\r", "Good day\r\n")
	x.typed("/stats\r", "sampling: greedy")
	if strings.Contains(x.text(), "\x1b[2m") || strings.Contains(x.text(), "\x1b[0m") {
		t.Errorf("colours with NO_COLOR: %q", x.text())
	}
	if err := x.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	x.ends(130)
}

// TestChatHistory: the file is its owner's alone, and --no-history leaves none.
func TestChatHistory(t *testing.T) {
	for _, private := range []bool{false, true} {
		args := []string{"chat", "-q"}
		if private {
			args = append(args, "--no-history")
		}
		dir := t.TempDir()
		x := onTerminal(t, []string{"XDG_CACHE_HOME=" + dir}, args...)
		x.typed("", "> ")
		x.typed("/undo\r", "nothing to take back")
		x.typed("/exit\r", "")
		x.ends(0)
		st, err := os.Stat(filepath.Join(dir, "nrun", "chat_history"))
		if private {
			if err == nil {
				t.Error("history in spite of --no-history")
			}
			continue
		}
		if err != nil || st.Mode().Perm() != 0o600 || st.Size() == 0 {
			t.Errorf("history file: %v, %v", st, err)
		}
	}
}
