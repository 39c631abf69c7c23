//go:build !unix && !windows

package outfile

func isFull(error) bool { return false }
func syncDir(string)    {}
func reportFileLimit()  {}
