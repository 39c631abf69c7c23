package cli

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// IsTerminal reports whether w is a terminal. It sees through the writer that
// [Run] gives to commands.
func IsTerminal(w any) bool {
	if o, ok := w.(*output); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Progress shows how much of a known number of bytes is done, with rate and
// time left. It may be used by several goroutines.
type Progress struct{ bar *progressbar.ProgressBar }

// NewProgress draws a bar on w. It draws nothing where w is no terminal or one
// that cannot redraw a line, or if quiet is set. No escape sequences are used,
// so that NO_COLOR needs no case of its own.
func NewProgress(w io.Writer, label string, total int64, quiet bool) *Progress {
	if quiet || !IsTerminal(w) || os.Getenv("TERM") == "dumb" {
		return &Progress{}
	}
	return &Progress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(label),
		progressbar.OptionShowBytes(true),
		progressbar.OptionShowTotalBytes(true),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionUseANSICodes(false),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(24),
		progressbar.OptionClearOnFinish(),
	)}
}

// Add counts n more bytes.
func (p *Progress) Add(n int) {
	if p.bar != nil {
		_ = p.bar.Add(n)
	}
}

// Done removes the bar, also where the work ended early.
func (p *Progress) Done() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
