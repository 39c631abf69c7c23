package pack_test

import (
	"errors"
	"strings"
	"testing"

	"npack/pack"
	"npack/testdata/cases"
)

func TestIdentify(t *testing.T) {
	pad := func(s string) string { return s + strings.Repeat("\x00", 60) }
	tests := []struct {
		name, head string
		kind       pack.Kind
		err        error
		mention    string
	}{
		{"native", pad("TRTC"), pack.KindTRTC, nil, ""},
		{"tv4z", pad("TV4Z\x01"), pack.KindTV4Z, nil, ""},
		{"gguf", pad("GGUF\x03"), pack.KindGGUF, nil, ""},
		{"safetensors", "\x20\x00\x00\x00\x00\x00\x00\x00{\"a\":1}", pack.KindSafetensors, nil, ""},
		{"empty", "", pack.KindEmpty, pack.ErrTruncated, "the file is empty"},
		{"one byte of a magic", "T", pack.KindTRTC, pack.ErrTruncated, "truncated: 1 bytes"},
		{"three bytes of a magic", "GGU", pack.KindGGUF, pack.ErrTruncated, "truncated: 3 bytes"},
		{"magic alone", "TRTC", pack.KindTRTC, pack.ErrTruncated, "needs 60 bytes, 4 are there"},
		{"one byte short", pad("TRTC")[:59], pack.KindTRTC, pack.ErrTruncated, "needs 60 bytes, 59 are there"},
		{"html", "\xef\xbb\xbf \n<HTML lang=en>", pack.KindHTML, pack.ErrNotModel, "/resolve/"},
		{"xml error page", "<?xml version=\"1.0\"?><Error><Code>AccessDenied", pack.KindHTML, pack.ErrNotModel, "HTML"},
		{"lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4127195136\n", pack.KindLFS, pack.ErrNotModel, "4127195136 bytes (4.1 GB) and was not fetched"},
		{"lfs with crlf", "version https://git-lfs.github.com/spec/v1\r\nsize 17\r\n", pack.KindLFS, pack.ErrNotModel, "17 bytes"},
		{"lfs without a size", "version https://git-lfs.github.com/spec/v1\nsize -1\n", pack.KindLFS, pack.ErrNotModel, "pointer, not the file"},
		{"text", "hello\n", pack.KindUnknown, pack.ErrNotModel, `"hello\n"`},
		{"zip", "PK\x03\x04", pack.KindUnknown, pack.ErrNotModel, `"PK\x03\x04"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kind, err := pack.Identify("m.bin", []byte(tt.head), int64(len(tt.head)))
			if kind != tt.kind || !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Fatalf("%v, %v; want %v, %v", kind, err, tt.kind, tt.err)
			}
			if err == nil {
				return
			}
			var e *pack.Error
			if !errors.As(err, &e) || e.File != "m.bin" || e.Hint == "" {
				t.Fatalf("%#v", err)
			}
			if text := e.Error() + " " + e.Hint; !strings.Contains(text, tt.mention) {
				t.Errorf("%q does not mention %q", text, tt.mention)
			}
		})
	}
}

// Every file of the cases is what its name says, or the opposite on purpose.
func TestSniffCases(t *testing.T) {
	for _, c := range cases.All() {
		b, err := cases.Files.ReadFile(c.File)
		if err != nil {
			t.Fatal(err)
		}
		want := pack.KindUnknown
		switch {
		case strings.HasSuffix(c.File, "page.gguf"):
			want = pack.KindHTML
		case strings.HasSuffix(c.File, "pointer.gguf"):
			want = pack.KindLFS
		case len(b) == 0:
			want = pack.KindEmpty
		case strings.HasSuffix(c.File, ".gguf"):
			want = pack.KindGGUF
		case strings.HasSuffix(c.File, ".bin"):
			want = pack.KindTRTC
		case strings.HasSuffix(c.File, ".safetensors"):
			want = pack.KindSafetensors
		}
		if got := pack.Sniff(b[:min(len(b), pack.SniffLen)], int64(len(b))); got != want {
			t.Errorf("%s: %v, want %v", c.File, got, want)
		}
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("cause")
	e := &pack.Error{Kind: pack.ErrCorrupt, File: "a \"b\".bin", Place: "tensor \"q\"", Offset: 7, Found: "x is 1", Expected: "2", Err: cause}
	if want := `"a \"b\".bin": tensor "q": byte 7: x is 1, expected 2: cause`; e.Error() != want {
		t.Errorf("%s\nwant %s", e, want)
	}
	if !errors.Is(e, pack.ErrCorrupt) || !errors.Is(e, cause) || errors.Is(e, pack.ErrTruncated) {
		t.Error("kind or cause is lost")
	}
}
