package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts passes signals on: to the handler, if one is set, else to cancel.
type interrupts struct {
	mu      sync.Mutex
	handler func()
	cancel  context.CancelFunc
}

type interruptsKey struct{}

// withInterrupts returns a context that the first Ctrl-C, SIGTERM or, when the
// terminal goes away, SIGHUP cancels. From then on the signals do what they do by
// default, so that a second one ends a program that does not listen.
func withInterrupts(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	in := &interrupts{cancel: cancel}
	ctx = context.WithValue(ctx, interruptsKey{}, in)

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		for {
			select {
			case s := <-signals:
				if !in.handle(s) {
					signal.Stop(signals)
					cancel()
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}

// handle reports whether a handler took the signal.
func (in *interrupts) handle(s os.Signal) bool {
	in.mu.Lock()
	f := in.handler
	in.mu.Unlock()
	if f == nil || s != os.Interrupt {
		return false
	}
	f()
	return true
}

// OnInterrupt makes Ctrl-C call f instead of cancelling ctx, the context of a
// running command, until restore is called. A chat uses it to end an answer
// and go on; nothing kills the program on a second Ctrl-C meanwhile.
func OnInterrupt(ctx context.Context, f func()) (restore func()) {
	in, ok := ctx.Value(interruptsKey{}).(*interrupts)
	if !ok {
		return func() {}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	old := in.handler
	in.handler = f
	return func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.handler = old
	}
}
