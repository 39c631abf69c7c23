package cli

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// IsTerminal reports whether w is a terminal. It sees through the writer that
// [Run] gives to commands.
func IsTerminal(w any) bool {
	f, ok := File(w)
	return ok && term.IsTerminal(int(f.Fd()))
}

// File returns the file that w is, if it is one. It sees through the writer
// that [Run] gives to commands.
func File(w any) (*os.File, bool) {
	if o, ok := w.(*output); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	return f, ok
}

// Progress shows how many bytes (or other things, see [Progress.Count]) of how
// many are done, with rate and time left.
// It may be used by several goroutines.
type Progress struct {
	w    io.Writer // nil: nothing is drawn
	unit string    // what is counted, "" for bytes
	mu   sync.Mutex
	bar  *progressbar.ProgressBar
}

// NewProgress returns a progress bar on w. It draws nothing where w is no
// terminal or one that cannot redraw a line, or if quiet is set. No escape
// sequences are used, so NO_COLOR needs no case of its own.
func NewProgress(w io.Writer, quiet bool) *Progress {
	if quiet || !IsTerminal(w) || os.Getenv("TERM") == "dumb" {
		w = nil
	}
	return &Progress{w: w}
}

// Count makes the bar count things, such as "tokens", instead of bytes.
func (p *Progress) Count(unit string) *Progress {
	p.unit = unit
	return p
}

// Show draws the bar. It may be called often.
func (p *Progress) Show(label string, done, total int64) {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar == nil {
		options := []progressbar.Option{
			progressbar.OptionSetWriter(p.w),
			progressbar.OptionShowCount(),
			progressbar.OptionShowTotalBytes(true),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionUseANSICodes(false),
			progressbar.OptionThrottle(100 * time.Millisecond),
			progressbar.OptionSetWidth(24),
			progressbar.OptionClearOnFinish(),
		}
		if p.unit == "" {
			options = append(options, progressbar.OptionShowBytes(true))
		} else {
			options = append(options, progressbar.OptionShowIts(), progressbar.OptionSetItsString(p.unit))
		}
		p.bar = progressbar.NewOptions64(total, options...)
	}
	if s := p.bar.State(); s.Description != label {
		p.bar.Describe(OneLine(label))
	}
	_ = p.bar.Set64(done)
}

// Done removes the bar, also where the work ended early.
func (p *Progress) Done() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
