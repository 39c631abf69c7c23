//go:build !linux

package outfile

import "os"

// writeEarly does nothing: other systems have no such call, or begin by
// themselves.
func writeEarly(*os.File) {}
