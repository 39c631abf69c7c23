//go:build !unix && !windows

package cli

var noSpace []error

func ignoreFileSizeSignal() {}
