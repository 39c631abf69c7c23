//go:build unix && !linux

package native

func advise([]byte) {}
