//go:build unix

package cli

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"

	urfave "github.com/urfave/cli/v2"
)

// TestInterrupt sends this process real signals: the first goes to the
// command's handler, the second cancels its context.
func TestInterrupt(t *testing.T) {
	app := &urfave.App{Name: "prog", Commands: []*urfave.Command{{Name: "wait", Action: func(c *urfave.Context) error {
		handled := make(chan bool, 1)
		restore := OnInterrupt(c.Context, func() { handled <- true })
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		<-handled
		if c.Context.Err() != nil {
			t.Error("a handled interrupt cancelled the context")
		}
		restore()
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		<-c.Context.Done()
		return c.Context.Err()
	}}}}
	var errs bytes.Buffer
	code := Run(context.Background(), app, []string{"prog", "wait"}, Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &errs})
	if code != 130 || errs.String() != "prog: error: interrupted\n" {
		t.Errorf("exit %d, %q", code, errs.String())
	}
}
