package mlx_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"npack/internal/outfile"
	"npack/pack/mlx"
	"npack/pack/native"
	"npack/ternary"
	"npack/testdata/story"
)

func container(t testing.TB, m *ternary.Model) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := native.Write(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// write makes a pack of m and returns its directory.
func write(t testing.TB, m *ternary.Model, o mlx.Options) (string, *mlx.Plan) {
	t.Helper()
	p, err := mlx.NewPlan(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "pack")
	d, err := outfile.CreateDir(path, p.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Abort()
	r, err := p.Write(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(container(t, m))
	if r.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("sha256 %s, the container has %x", r.SHA256, sum)
	}
	return path, p
}

func TestSmoke(t *testing.T) {
	f, err := native.OpenBytes("story", story.Container)
	if err != nil {
		t.Fatal(err)
	}
	for _, prof := range mlx.Profiles {
		if prof == mlx.Affine { continue }
		path, p := write(t, f.Model(), mlx.Options{Profile: prof, Side: "../../testdata/story", Source: "story.bin"})
		t.Logf("%s: %+v", prof, *&p.Bytes)
		t.Log(p.LinearError, p.TableError)
		os.RemoveAll("/tmp/M-mlx-" + string(prof))
		os.CopyFS("/tmp/M-mlx-"+string(prof), os.DirFS(path))
		if prof == mlx.Planes {
			x, err := mlx.Open(filepath.Join(path, "model.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			if got := container(t, x.Model()); !bytes.Equal(got, story.Container) {
				t.Error("another container")
			}
			x.Close()
		}
	}
}
