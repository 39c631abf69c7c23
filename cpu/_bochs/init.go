// Command init is the first process of the emulated machine (see README.md). It
// prints the processor's name and flags, runs /tests with the arguments in /args, one a
// line, prints its exit status and switches the machine off.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

func main() {
	fmt.Println()
	for dir, kind := range map[string]string{"/proc": "proc", "/dev": "devtmpfs", "/tmp": "tmpfs"} {
		os.MkdirAll(dir, 0o755)
		if err := syscall.Mount(kind, dir, kind, 0, ""); err != nil {
			fmt.Printf("init: mount %s: %v\n", dir, err)
		}
	}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if line := lines.Text(); strings.HasPrefix(line, "model name") || strings.HasPrefix(line, "flags") {
				fmt.Println(line)
			}
		}
	}
	fmt.Println("init: exit status", run())
	off()
}

func run() int {
	text, err := os.ReadFile("/args")
	if err != nil {
		fmt.Println("init:", err)
		return 1
	}
	var args []string
	if text := strings.TrimSuffix(string(text), "\n"); text != "" {
		args = strings.Split(text, "\n")
	}
	c := exec.Command("/tests", args...)
	c.Stdout, c.Stderr, c.Env = os.Stdout, os.Stderr, []string{"TMPDIR=/tmp"}
	if err := c.Run(); c.ProcessState == nil {
		fmt.Println("init:", err)
		return 1
	}
	return c.ProcessState.ExitCode()
}

// off ends Bochs by the word that it waits for at port 0x8900. The pause lets
// the serial line drain.
func off() {
	time.Sleep(time.Second)
	if port, err := os.OpenFile("/dev/port", os.O_WRONLY, 0); err == nil {
		for _, c := range []byte("Shutdown") {
			port.WriteAt([]byte{c}, 0x8900)
		}
	}
	syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}
