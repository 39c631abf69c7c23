//go:build amd64 && !noasm && !linux

package cpu

// tilesPermitted: Windows wants to be asked, too, which nobody here could try;
// macOS runs on no processor with tiles.
var tilesPermitted = func() bool { return false }
