package coded

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// stopAfter is an output that breaks after n bytes, as a killed run does.
type stopAfter struct {
	bytes.Buffer
	n int
}

var errStopped = errors.New("stopped")

func (s *stopAfter) Write(b []byte) (int, error) {
	if s.Len()+len(b) > s.n {
		k, _ := s.Buffer.Write(b[:max(0, s.n-s.Len())])
		return k, errStopped
	}
	return s.Buffer.Write(b)
}

// A run that was stopped anywhere goes on from its last whole block, reads no
// byte of the transport twice but for that, and ends with the same file.
func TestResume(t *testing.T) {
	coded, want := readFile(t, "a3-untied.tv4z"), readFile(t, "a3-untied.bin")
	for stop := 0; stop <= len(want); stop += 9973 {
		r := bytes.NewReader(coded)
		h, err := ReadHeader("test", r)
		if err != nil {
			t.Fatal(err)
		}
		var marks []Mark
		out := &stopAfter{n: stop}
		err = Decode(context.Background(), h, r, out, DecodeOptions{Done: func(d Done) { marks = append(marks, d.Mark) }})
		if stop < len(want) && err != errStopped {
			t.Fatalf("%d: %v", stop, err)
		}
		part := out.Bytes()
		checks := map[string]func() ([]byte, []Mark, bool){
			"as it was":    func() ([]byte, []Mark, bool) { return part, marks, true },
			"no journal":   func() ([]byte, []Mark, bool) { return part, nil, len(marks) == 0 },
			"lost its end": func() ([]byte, []Mark, bool) { return part[:len(part)/2], marks, len(marks) == 0 },
			"damaged": func() ([]byte, []Mark, bool) {
				b := bytes.Clone(part)
				b[marks[len(marks)-1].Source/2] ^= 4
				return b, marks, false
			},
			"wrong journal": func() ([]byte, []Mark, bool) {
				m := append([]Mark{}, marks...)
				m[len(m)/2].CRC++
				return part, m, false
			},
			"hostile journal": func() ([]byte, []Mark, bool) {
				m := append([]Mark{}, marks...)
				m[0].Source = -1
				return part, m, false
			},
			"journal too long": func() ([]byte, []Mark, bool) {
				return part, append(append([]Mark{}, marks...), Mark{Number: 1 << 40}), true
			},
		}
		for name, make := range checks {
			if len(marks) == 0 && name != "no journal" {
				continue
			}
			part, marks, all := make()
			var seen bytes.Buffer
			p, err := Recover(context.Background(), h, bytes.NewReader(part), marks, &seen)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if all && len(marks) > 0 && p.Block != int64(len(marks)) && name == "as it was" {
				t.Errorf("%s: %d of %d blocks", name, p.Block, len(marks))
			}
			if !all && p.Block >= int64(len(marks)) && name != "no journal" && name != "lost its end" {
				t.Errorf("%s: all of %d blocks are taken", name, len(marks))
			}
			rest := bytes.NewBuffer(bytes.Clone(part[:p.Source]))
			if err := Decode(context.Background(), h, bytes.NewReader(coded[p.Coded:]), rest, DecodeOptions{From: p, Check: &seen}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !bytes.Equal(rest.Bytes(), want) {
				t.Fatalf("%s: wrong file", name)
			}
			if !bytes.Equal(seen.Bytes(), want) {
				t.Fatalf("%s: the check saw something else", name)
			}
		}
	}
}
