package coded_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"npack/pack/coded"
	"npack/testdata/story"
	"npack/testdata/tv4z"
)

// pair is a container and the transport that the publisher's program made of
// it.
type pair struct {
	name          string
	source, coded []byte
}

func pairs(t testing.TB) []pair {
	t.Helper()
	names, err := fs.Glob(tv4z.Files, "*.bin")
	if err != nil || len(names) != 12 {
		t.Fatal(names, err)
	}
	var all []pair
	for _, n := range names {
		n = strings.TrimSuffix(n, ".bin")
		all = append(all, pair{n, file(t, n+".bin"), file(t, n+".tv4z")})
	}
	b, err := os.ReadFile(filepath.FromSlash("../../testdata/story/story.tv4z"))
	if err != nil {
		t.Fatal(err)
	}
	return append(all, pair{"story", story.Container, b})
}

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := tv4z.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode(b []byte, o coded.DecodeOptions) ([]byte, error) {
	r := bytes.NewReader(b)
	h, err := coded.ReadHeader(o.Name, r)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = coded.Decode(context.Background(), h, r, &out, o)
	return out.Bytes(), err
}

func encode(b []byte, o coded.EncodeOptions) ([]byte, error) {
	var out bytes.Buffer
	err := coded.Encode(context.Background(), bytes.NewReader(b), int64(len(b)), &out, o)
	return out.Bytes(), err
}

// Every genuine file is decoded to its container and made from it again, bit
// for bit.
func TestGenuine(t *testing.T) {
	for _, p := range pairs(t) {
		for _, threads := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("%s/%d", p.name, threads), func(t *testing.T) {
				for _, size := range []int64{0, int64(len(p.coded))} {
					got, err := decode(p.coded, coded.DecodeOptions{Name: p.name, Threads: threads, Size: size})
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, p.source) {
						t.Error("decodes to something else")
					}
				}
				got, err := encode(p.source, coded.EncodeOptions{Name: p.name, Threads: threads})
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, p.coded) {
					t.Error("encodes to something else")
				}
			})
		}
	}
}
