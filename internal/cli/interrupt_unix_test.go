//go:build unix

package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

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

// TestHangup: a terminal that goes away ends a command in order, so that no half
// output stays, unless it runs under nohup.
func TestHangup(t *testing.T) {
	ended := func() (ended bool) {
		app := &urfave.App{Name: "prog", Commands: []*urfave.Command{{Name: "wait", Action: func(c *urfave.Context) error {
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			select {
			case <-c.Context.Done():
			case <-time.After(200 * time.Millisecond):
			}
			ended = c.Context.Err() != nil
			return nil
		}}}}
		Run(t.Context(), app, []string{"prog", "wait"}, Streams{strings.NewReader(""), io.Discard, io.Discard})
		return ended
	}
	heed := func() { // Reset alone leaves a signal known as ignored
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGHUP)
		signal.Stop(c)
	}
	heed()
	if !ended() {
		t.Error("a hangup did not end the command")
	}
	signal.Ignore(syscall.SIGHUP)
	defer heed()
	if ended() {
		t.Error("an ignored hangup ended the command")
	}
}
