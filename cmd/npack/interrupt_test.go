package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"npack/internal/outfile"
	"npack/pack/coded"
	"npack/pack/native"
	"npack/ternary"
)

// randomModel returns a container of some 120 MB, which takes a moment to
// expand.
func randomModel(t *testing.T) []byte {
	t.Helper()
	c := ternary.Config{Arch: ternary.Qwen3, Layers: 6, Hidden: 2048, Heads: 16, KVHeads: 4, HeadDim: 128, RotaryDims: 128,
		Intermediate: 7168, Vocab: 2000, MaxPosition: 512, RMSEps: 1e-6, RopeTheta: 1e6, Tied: true}
	rnd := rand.NewChaCha8([32]byte{1})
	floats := func(n int) []float32 { return slices.Repeat([]float32{1}, n) }
	m := &ternary.Model{Config: c, FinalNorm: floats(c.Hidden)}
	for range c.Layers {
		var l ternary.Layer
		for _, n := range l.Norms(&c) {
			*n.Data = floats(n.Len)
		}
		shapes := c.LinearShapes()
		for j, w := range l.Linears() {
			rows, stride := shapes[j].Rows, shapes[j].Cols/8
			*w = ternary.Matrix{Rows: rows, Cols: 8 * stride, ColsPad: 8 * stride, Stride: stride, SLo: floats(rows), SHi: floats(rows),
				BP: make([]byte, rows*stride), BN: make([]byte, rows*stride), BR: make([]byte, rows*stride), RSLo: make([]int32, rows), RSHi: make([]int32, rows)}
			for _, p := range [][]byte{w.BP, w.BN, w.BR} {
				rnd.Read(p)
			}
			for i := range w.BP {
				w.BN[i] &^= w.BP[i]
				w.BR[i] &= w.BP[i] | w.BN[i]
			}
		}
		m.Layers = append(m.Layers, l)
	}
	m.Head = ternary.Int8Matrix{Rows: c.Vocab, Cols: c.Hidden, ColsPad: c.Hidden, Stride: c.Hidden, Q: make([]int8, c.Vocab*c.Hidden),
		Scale: floats(c.Vocab), WSum: make([]int32, c.Vocab)}
	var b bytes.Buffer
	if err := native.Write(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// started is a running npack.
type started struct {
	*exec.Cmd
	stderr bytes.Buffer
}

// startExpand starts an expansion and waits until there is a journal to go on
// from that is newer than before.
func startExpand(t *testing.T, in, out string) *started {
	t.Helper()
	before, _ := os.Stat(out + ".part.json")
	s := &started{Cmd: exec.Command("npack", "expand", "-q", "-t", "1", in, out)}
	s.Stderr = &s.stderr
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if st, err := os.Stat(out + ".part.json"); err == nil && (before == nil || st.ModTime().After(before.ModTime())) {
			return s
		}
		if _, err := os.Stat(out); err == nil {
			t.Fatal("too fast to be interrupted")
		}
		time.Sleep(time.Millisecond)
	}
}

// An expansion that is killed, killed again and told to stop leaves nothing
// under its final name, goes on where it was each time, and ends with the right
// file.
func TestInterruptedExpand(t *testing.T) {
	want := randomModel(t)
	dir := t.TempDir()
	in, out := filepath.Join(dir, "m.tv4z"), filepath.Join(dir, "m.bin")
	f, err := os.Create(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := coded.Encode(context.Background(), bytes.NewReader(want), int64(len(want)), f, coded.EncodeOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Close()
	kept := func() []string {
		t.Helper()
		names, _ := filepath.Glob(filepath.Join(dir, "m.bin*"))
		for i := range names {
			names[i] = filepath.Base(names[i])
		}
		return slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, ".tmp") })
	}

	s := startExpand(t, in, out)
	if err := s.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.Wait()
	if got := kept(); !slices.Equal(got, []string{"m.bin.part", "m.bin.part.json"}) {
		t.Fatalf("kill -9 left %q", got)
	}

	if runtime.GOOS != "windows" { // which cannot send a program Ctrl-C alone
		s = startExpand(t, in, out)
		if err := s.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := s.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
			t.Fatalf("Ctrl-C: %v", err)
		}
		if got := s.stderr.String(); !strings.HasPrefix(got, "npack: error: interrupted\nnpack: hint: ") || !strings.Contains(got, "the same command goes on") {
			t.Errorf("Ctrl-C says %q", got)
		}
		if got := kept(); !slices.Equal(got, []string{"m.bin.part", "m.bin.part.json"}) {
			t.Fatalf("Ctrl-C left %q", got)
		}
	}

	b, err := exec.Command("npack", "expand", "--json", in, out).Output()
	if err != nil {
		t.Fatal(err)
	}
	var e expansion
	if err := json.Unmarshal(b, &e); err != nil || e.Resumed == 0 || e.Bytes != int64(len(want)) {
		t.Errorf("%v: went on after %d of %d bytes", err, e.Resumed, e.Bytes)
	}
	got, _ := os.ReadFile(out)
	if sha256.Sum256(got) != sha256.Sum256(want) {
		t.Error("another file")
	}
	if got := kept(); !slices.Equal(got, []string{"m.bin"}) {
		t.Errorf("left behind: %q", got)
	}
}

// What an earlier run left of another transport, or damaged, is told and of no
// use.
func TestStalePart(t *testing.T) {
	dir := t.TempDir()
	data := "../../testdata/story/story.tv4z"
	want, err := os.ReadFile("../../testdata/story/story.bin")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "m.bin")
	for name, journal := range map[string]string{
		"no journal": "", "no JSON": "{", "empty": "{}", "other": `{"key":"x","header":{"SourceSize":9,"Blocks":1},"marks":[{"block":0,"coded":60,"source":3,"crc32c":1}]}`,
		"hostile": `{"key":"x","header":{"SourceSize":-9,"Blocks":1},"marks":[{"block":0,"coded":-60,"source":-3,"crc32c":1},null]}`,
	} {
		os.Remove(out)
		if err := os.WriteFile(out+".part", []byte("left from before"), 0o666); err != nil {
			t.Fatal(err)
		}
		if journal != "" {
			if err := os.WriteFile(out+".part.json", []byte(journal), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		var stderr bytes.Buffer
		if code := run([]string{"npack", "expand", "-q", data, out}, nil, io.Discard, &stderr); code != 0 ||
			!strings.Contains(stderr.String(), "warning: the 16 bytes in") || !strings.Contains(stderr.String(), "starting afresh") {
			t.Errorf("%s: exit %d, %q", name, code, &stderr)
		}
		if got, _ := os.ReadFile(out); !bytes.Equal(got, want) {
			t.Errorf("%s: another file", name)
		}
		if names, _ := filepath.Glob(out + "*"); len(names) != 1 {
			t.Errorf("%s: left %q", name, names)
		}
	}
}

// A part that another program is writing is left to it: what is there is no reason
// to type the same command again.
func TestBusyPart(t *testing.T) {
	out := filepath.Join(t.TempDir(), "m.bin")
	p, err := outfile.OpenPart(out)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	code := run([]string{"npack", "expand", "../../testdata/story/story.tv4z", out}, nil, io.Discard, &stderr)
	if got := stderr.String(); code != 1 || !strings.Contains(got, "another program is writing it") || !strings.Contains(got, "npack: hint: wait for it, or name another output\n") {
		t.Errorf("exit %d, %q", code, got)
	}
}

// A disk without room is seen before the first byte is written.
func TestNoRoom(t *testing.T) {
	dir := t.TempDir()
	if b, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no small file system to be had: %v %s", err, b)
	}
	defer exec.Command("umount", dir).Run()
	for _, args := range []string{"expand story.tv4z x.bin", "compress story.bin x.tv4z", "compress --packed story.bin x.t5q"} {
		f := strings.Fields(args)
		n := len(f)
		f[n-2], f[n-1] = "../../testdata/story/"+f[n-2], filepath.Join(dir, f[n-1])
		var stderr bytes.Buffer
		if code := run(append([]string{"npack"}, f...), nil, io.Discard, &stderr); code != 8 || !strings.Contains(stderr.String(), "bytes are free, expected ") {
			t.Errorf("%s: exit %d, %q", args, code, &stderr)
		}
		if names, _ := os.ReadDir(dir); len(names) != 0 {
			t.Errorf("%s: left %v", args, names)
		}
	}
}
