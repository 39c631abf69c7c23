package pack

import (
	"bytes"
	"fmt"
	"strconv"
)

// Kind is what a file is, told from its first bytes.
type Kind int

const (
	KindUnknown     Kind = iota
	KindEmpty            // no bytes at all
	KindTRTC             // the native container, or its packed form t5q: only a walk over the records tells them apart
	KindTV4Z             // the coded transport of a container
	KindGGUF             //
	KindSafetensors      //
	KindHTML             // a web page
	KindLFS              // a Git LFS pointer
)

// String returns the name used in messages.
func (k Kind) String() string {
	switch k {
	case KindEmpty:
		return "empty file"
	case KindTRTC:
		return "native container"
	case KindTV4Z:
		return "tv4z coded transport"
	case KindGGUF:
		return "GGUF"
	case KindSafetensors:
		return "safetensors"
	case KindHTML:
		return "HTML page"
	case KindLFS:
		return "Git LFS pointer"
	}
	return "unknown"
}

// SniffLen is how many bytes from the start of a file Sniff wants to see.
const SniffLen = 512

// lfsStart is how the pointer files of Git LFS begin.
const lfsStart = "version https://git-lfs.github.com/spec/"

// magics are the formats that start with four fixed bytes.
var magics = []struct {
	magic  string
	kind   Kind
	header int64 // bytes a file has at least
}{
	{"TRTC", KindTRTC, 60},
	{"TV4Z", KindTV4Z, 40},
	{"GGUF", KindGGUF, 24},
}

// Sniff tells what a file of the given size is from head, its first
// [SniffLen] bytes or all of it if it is shorter.
func Sniff(head []byte, size int64) Kind {
	if size == 0 {
		return KindEmpty
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return m.kind
		}
	}
	if bytes.HasPrefix(head, []byte(lfsStart)) {
		return KindLFS
	}
	// A safetensors file is a u64 length, then that many bytes of JSON.
	if len(head) >= 9 && head[8] == '{' {
		return KindSafetensors
	}
	text := bytes.ToLower(bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n"))
	for _, tag := range []string{"<!doctype html", "<html", "<head", "<?xml", "<!--"} {
		if bytes.HasPrefix(text, []byte(tag)) {
			return KindHTML
		}
	}
	return KindUnknown
}

// Identify is Sniff for a file that should be a model: it returns a ready
// [*Error] for what is none (an empty file, a web page, a Git LFS pointer,
// something unknown) and for a file too short to hold its format's header.
func Identify(name string, head []byte, size int64) (Kind, error) {
	kind := Sniff(head, size)
	e := &Error{Kind: ErrNotModel, File: name, Offset: -1}
	switch kind {
	case KindEmpty:
		e.Kind, e.Found, e.Expected = ErrTruncated, "the file is empty", "a model"
		e.Hint = "the download never started or the disk was full: fetch the file again"
	case KindHTML:
		e.Found, e.Expected = "this is an HTML page saved under a model's name", "a model"
		e.Hint = "fetch the file itself, not the page about it: on a hub the address has /resolve/ in place of /blob/, " +
			"https://huggingface.co/OWNER/NAME/resolve/main/FILE; a page that asks to sign in needs a token"
	case KindLFS:
		e.Found = "this is a Git LFS pointer, not the file"
		if n, ok := LFSSize(head); ok {
			e.Found = fmt.Sprintf("this is a Git LFS pointer; the real file is %d bytes (%s) and was not fetched", n, sizeText(n))
		}
		e.Expected = "a model"
		e.Hint = "run \"git lfs pull\" in the repository, or download the file itself"
	case KindUnknown:
		for _, m := range magics {
			if size < 4 && bytes.HasPrefix([]byte(m.magic), head) {
				e.Kind = ErrTruncated
				e.Found, e.Expected = fmt.Sprintf("truncated: %d bytes are there", size), fmt.Sprintf("at least %d for a %s", m.header, m.kind)
				e.Hint = hintIncomplete
				return m.kind, e
			}
		}
		e.Offset, e.Found = 0, fmt.Sprintf("unknown kind of file: it starts with %q", head[:min(8, len(head))])
		e.Expected = "a native container (TRTC), tv4z, GGUF or safetensors"
		e.Hint = "check that this is the model file; \"npack inspect\" takes a file or a pack directory"
	default:
		for _, m := range magics {
			if m.kind == kind && size < m.header {
				e.Kind, e.Offset = ErrTruncated, size
				e.Found = fmt.Sprintf("truncated: the header needs %d bytes, %d are there", m.header, size)
				e.Hint = hintIncomplete
				return kind, e
			}
		}
		return kind, nil
	}
	return kind, e
}

const hintIncomplete = "the download may be incomplete: compare the size with the publisher's and fetch the rest"

// LFSSize returns the size that a Git LFS pointer declares for the real file.
func LFSSize(head []byte) (int64, bool) {
	for line := range bytes.Lines(head) {
		if digits, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("size ")); ok {
			n, err := strconv.ParseInt(string(digits), 10, 64)
			return n, err == nil && n >= 0
		}
	}
	return 0, false
}

// sizeText words a size for people: "4.1 GB".
func sizeText(n int64) string {
	for _, u := range []struct {
		unit string
		size float64
	}{{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if float64(n) >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/u.size, u.unit)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
