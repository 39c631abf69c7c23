package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"npack/internal/certificate"
	"npack/internal/outfile"
	"npack/internal/tokens"
	"npack/pack"
	"npack/pack/coded"
	"npack/pack/fv5"
	"npack/pack/mlx"
	"npack/pack/native"
	"npack/ternary"
	"npack/ternary/ternarytest"
	"npack/testdata/story"
)

// tinyBattery keeps tests short.
const tinyBattery = `{"format":"npack-battery","version":1,"name":"tiny","steps":3,"prompts":[
{"class":"counting","text":"One, two, three,"},
{"class":"prose","text":"Once upon a time"},
{"class":"chat","text":"<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"}]}`

// packFiles are the files of storyPack, made once.
var packFiles = sync.OnceValues(func() (map[string][]byte, error) {
	files := map[string][]byte{"battery.json": []byte(tinyBattery)}
	const dir = "../../testdata/story"
	for _, name := range []string{"story.bin", "story.tv4z", "tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja", "vocab.json", "merges.txt"} {
		var err error
		if files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	tok, err := tokens.FromPack(dir, 4096)
	if err != nil {
		return nil, err
	}
	f, err := native.OpenBytes("story.bin", story.Container)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = fv5.Write(&out, f.Model(), fv5.Options{Name: "story", Tokenizer: tok})
	files["story.gguf"] = out.Bytes()
	return files, err
})

// storyPack makes a pack directory with the story model as container, coded
// transport and GGUF, and with a short battery.
func storyPack(t *testing.T) string {
	t.Helper()
	files, err := packFiles()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range files {
		write(t, dir, name, data)
	}
	pin(t, dir, "story.bin")
	return dir
}

// storyModel is the story model in memory of its own.
func storyModel(t *testing.T) *ternary.Model {
	t.Helper()
	f, err := native.OpenBytes("story.bin", bytes.Clone(story.Container))
	if err != nil {
		t.Fatal(err)
	}
	return f.Model()
}

func write(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// pin writes the manifest of what is in dir now.
func pin(t *testing.T, dir, container string) {
	t.Helper()
	m, err := pack.BuildManifest(t.Context(), dir, container, nil)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, pack.ManifestName, m.Encode())
}

func TestCertify(t *testing.T) {
	dir := storyPack(t)
	code, stdout, stderr := nrun("", "certify", dir, "--backend", "cpu,reference")
	if code != 0 {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	for _, want := range []string{"gguf   story.gguf", "tv4z   story.tv4z", "gives the container back", "absent    safetensors: no file of this format is here",
		"equal     story.gguf by reference", "absent    mlx: no file of this format is here", "certified: 45 positions compared, 0 divergences"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	c, _, err := certificate.Read(filepath.Join(dir, certificate.Name))
	if err != nil {
		t.Fatal(err)
	}
	// The digest that trajectories carry too, and all that the schema promises.
	if c.Model.SHA256 != "1e11f4579475d3f6e4fa92a304346679bae7e49407606bcac4566d8a8c698715" || len(c.Model.Tensors) == 0 || c.Numerics != 1 || c.KV != "f16" ||
		len(c.Formats) != 3 || c.Formats[0].File != "story.bin" || len(c.Runs) != 6 || c.Runs[0].Positions != 0 || c.Runs[5].Positions != 9 || c.Runs[1].Backend != "reference" ||
		c.Runs[0].Kernels == "" || c.Battery.Prompts != 3 || len(c.Prompts) != 3 || len(c.Classes) != 3 || c.MinMargin == nil || *c.MinMargin <= 0 || c.Positions != 45 {
		t.Errorf("%+v", c)
	}
	if code, _, stderr := nrun("", "certify", dir); code != 2 || !strings.Contains(stderr, "--force replaces it") {
		t.Errorf("an old certificate: exit %d: %s", code, stderr)
	}
}

// An MLX pack in the directory is a form like the others: same weights, the same
// container, equal tokens and bits, its own tokenizer compared.
func TestCertifyMLX(t *testing.T) {
	dir := storyPack(t)
	f, err := native.OpenBytes("story.bin", story.Container)
	if err != nil {
		t.Fatal(err)
	}
	p, err := mlx.NewPlan(t.Context(), f.Model(), mlx.Options{Side: dir, MaxShard: 3_000_000})
	if err != nil {
		t.Fatal(err)
	}
	d, err := outfile.CreateDir(filepath.Join(dir, "mlx"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Abort()
	if _, err := p.Write(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	pin(t, dir, "story.bin")
	code, stdout, stderr := nrun("", "certify", dir)
	if code != 0 {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	const name = "mlx/model-00001-of-00002.safetensors"
	for _, want := range []string{"mlx    " + name, "equal     " + name + " by cpu"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	for file, edit := range map[string][2]string{
		"mlx/tokenizer.json":         {"\"Ġt\",\n        \"he\"", "\"Ġ\",\n        \"the\""},
		"mlx/npack-rows.safetensors": {"blk.3.attn_k.rs_lo", "blk.3.attn_k.rs_ll"},
		"mlx/pack.json":              {`"version": 1`, `"version": 9`},
	} {
		good := read(t, dir, file)
		write(t, dir, file, bytes.Replace(good, []byte(edit[0]), []byte(edit[1]), 1))
		pin(t, dir, "story.bin")
		code, stdout, _ := nrun("", "certify", "-f", dir)
		if file == "mlx/pack.json" { // of a newer program: said, not failed
			if code != 0 || !strings.Contains(stdout, "version 9") {
				t.Errorf("%s: exit %d: %s", file, code, stdout)
			}
		} else if code == 0 || !strings.Contains(stdout, "FAILED") {
			t.Errorf("%s: exit %d: %s", file, code, stdout)
		}
		write(t, dir, file, good)
	}
}

// TestCertifyFails: what is damaged is found and named, with the old manifest
// and, where the damage lies elsewhere, with one that pins the damage.
func TestCertifyFails(t *testing.T) {
	model := func(change func(m *ternary.Model)) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			m := storyModel(t)
			change(m)
			var out bytes.Buffer
			if err := native.Write(&out, m); err != nil {
				t.Fatal(err)
			}
			write(t, dir, "story.bin", out.Bytes())
		}
	}
	replace := func(name, from, to string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			data := read(t, dir, name)
			if !bytes.Contains(data, []byte(from)) {
				t.Fatalf("%s holds no %q", name, from)
			}
			write(t, dir, name, bytes.Replace(data, []byte(from), []byte(to), 1))
		}
	}
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		repin  bool // the manifest is made again and true
		code   int
		want   []string
	}{
		{"trit", model(flipTrit), false, 3, []string{`story.bin": sha256 `, `"blk.1.ffn_up": row 5, column `, "the weight is "}},
		{"trit, pinned", model(flipTrit), true, 3, []string{`story.bin" and "`, `have different weights: tensor "blk.1.ffn_up": row 5, column `}},
		{"scale bit", model(func(m *ternary.Model) { flipBit(&m.Layers[2].Down.SHi[7]) }), true, 3, []string{`tensor "blk.2.ffn_down": row 7`}},
		{"scale bit of the embedding", model(func(m *ternary.Model) { flipBit(&m.Head.Scale[9]) }), true, 3, []string{`tensor "token_embd": row 9`}},
		{"norm bit", model(func(m *ternary.Model) { flipBit(&m.FinalNorm[3]) }), true, 3, []string{`tensor "output_norm": row 3: the value is `}},
		// Weights are equal, but the bytes that the transport gives are not the container's.
		{"row sum", model(func(m *ternary.Model) { m.Layers[0].Q.RSLo[0]++ }), true, 3, []string{"the container in it has sha256", `that of "story.bin"`}},
		{"transport byte", func(t *testing.T, dir string) {
			data := read(t, dir, "story.tv4z")
			data[len(data)/2] ^= 1
			write(t, dir, "story.tv4z", data)
		}, true, 4, []string{`story.tv4z": `}},
		{"transport of another model", func(t *testing.T, dir string) {
			m := storyModel(t)
			flipTrit(m)
			var out bytes.Buffer
			if err := coded.Write(&out, m); err != nil {
				t.Fatal(err)
			}
			write(t, dir, "story.tv4z", out.Bytes())
		}, true, 3, []string{`story.tv4z" have different weights: tensor "blk.1.ffn_up": row 5`}},
		{"merge", replace("tokenizer.json", "\"Ġt\",\n        \"he\"", "\"Ġ\",\n        \"the\""), false, 3, []string{`tokenizer.json": sha256 `, `merges.txt": tokenizer: merge `, `story.gguf": tokenizer: merge `}},
		{"merge, pinned", replace("tokenizer.json", "\"Ġt\",\n        \"he\"", "\"Ġ\",\n        \"the\""), true, 3, []string{`story.gguf": tokenizer: merge `, ` is "Ġt he", expected "Ġ the", as in tokenizer.json`}},
		{"merges.txt", replace("merges.txt", "\nĠt he\n", "\nĠ the\n"), true, 3, []string{`merges.txt": tokenizer: merge `}},
		{"vocab.json", replace("vocab.json", `"!": 0`, `"!": 1`), true, 3, []string{`vocab.json": tokenizer: token "!" is not 0`}},
		{"manifest digest", replace(pack.ManifestName, `"sha256": "9`, `"sha256": "8`), false, 4, []string{`has another size or sha256 than in files`}},
		{"manifest name", replace(pack.ManifestName, `"merges.txt"`, `"nerges.txt"`), false, 3, []string{`merges.txt": the file is here and not in MANIFEST.json`}},
		{"no manifest", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, pack.ManifestName)) }, false, 5, []string{"the manifest is not there"}},
		{"not pinned", func(t *testing.T, dir string) { write(t, dir, "more.txt", nil) }, false, 3, []string{`more.txt": the file is here and not in MANIFEST.json`}},
		{"container cut", func(t *testing.T, dir string) { write(t, dir, "story.bin", story.Container[:4000]) }, true, 5, []string{`story.bin": `}},
		{"battery of another tokenizer", replace("battery.json", `"text":"Once upon a time"`, `"text":"Once upon a time","ids":[1]`), true, 4, []string{`battery.json": prompts[1].ids[0]`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := storyPack(t)
			tc.damage(t, dir)
			if tc.repin {
				pin(t, dir, "story.bin")
			}
			code, stdout, stderr := nrun("", "certify", dir)
			if code != tc.code || !strings.Contains(stderr, "is not certified") {
				t.Errorf("exit %d, want %d: %s%s", code, tc.code, stdout, stderr)
			}
			for _, want := range tc.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in\n%s", want, stdout)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, certificate.Name)); err == nil {
				t.Error("a certificate was written")
			}
		})
	}
}

// flipTrit turns one +1 into -1.
func flipTrit(m *ternary.Model) {
	w := &m.Layers[1].Up
	for i := 5 * w.Stride; ; i++ {
		if bit := w.BP[i] & -w.BP[i]; bit != 0 {
			w.BP[i] &^= bit
			w.BN[i] |= bit
			return
		}
	}
}

func flipBit(f *float32) { *f = math.Float32frombits(math.Float32bits(*f) ^ 1) }

// TestCertifyManifestByte: no byte of a manifest can change unnoticed, whatever
// it stands for.
func TestCertifyManifestByte(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	m := ternarytest.Model(ternarytest.All()[0].Spec)
	if err := native.Write(&out, m); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "m.bin", out.Bytes())
	out.Reset()
	if err := coded.Write(&out, m); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "m.tv4z", out.Bytes())
	write(t, dir, "README.md", []byte("hello"))
	pin(t, dir, "m.bin")
	good := read(t, dir, pack.ManifestName)
	for i := -1; i < len(good); i++ {
		data := bytes.Clone(good)
		if i >= 0 {
			data[i] ^= 1
		}
		write(t, dir, pack.ManifestName, data)
		g := &gate{Context: quietContext(t), dir: dir}
		for _, step := range []func() error{g.checkManifest, g.findForms} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if (len(g.failures) > 0) != (i >= 0) {
			t.Errorf("byte %d: %q: failures %v", i, data[max(i-20, 0):min(max(i, 0)+20, len(data))], g.failures)
		}
	}
}

// TestCertifyShards: parts made on several machines are one certificate, equal
// to that of one machine but for the runs.
func TestCertifyShards(t *testing.T) {
	dir, out := storyPack(t), t.TempDir()
	file := func(name string) string { return filepath.Join(out, name) }
	for _, args := range [][]string{{"-o", file("all.json")}, {"--shard", "0/2", "-o", file("0.json")}, {"-o", file("1.json"), "--shard", "1/2"}} {
		if code, stdout, stderr := nrun("", append([]string{"certify", dir}, args...)...); code != 0 {
			t.Fatalf("%v: exit %d: %s%s", args, code, stdout, stderr)
		}
	}
	code, stdout, stderr := nrun("", "certify", "merge", file("1.json"), file("0.json"), "-o", file("merged.json"))
	if code != 0 || !strings.Contains(stdout, "certified: 18 positions compared, 0 divergences") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	all, _, err := certificate.Read(file("all.json"))
	if err != nil {
		t.Fatal(err)
	}
	merged, _, err := certificate.Read(file("merged.json"))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(all.Prompts)
	b, _ := json.Marshal(merged.Prompts)
	if !bytes.Equal(a, b) || all.Positions != merged.Positions || merged.Shard != nil || len(merged.Runs) != 6 || merged.Runs[5].Shard != 1 {
		t.Errorf("%s\n%s\n%+v", a, b, merged)
	}

	// Another directory's part does not fit.
	write(t, dir, "more.txt", nil)
	pin(t, dir, "story.bin")
	if code, _, stderr := nrun("", "certify", dir, "--shard", "1/2", "-o", file("other.json")); code != 0 {
		t.Fatal(stderr)
	}
	for _, tc := range []struct {
		files []string
		code  int
		want  string
	}{
		{[]string{"0.json"}, 5, "shard 1 of 2: its certificate is not there"},
		{[]string{"1.json"}, 5, "shard 0 of 2: its certificate is not there"},
		{[]string{"0.json", "0.json", "1.json"}, 3, "shard: shard 0 is in "},
		{[]string{"all.json", "0.json"}, 3, "the certificate is of a whole battery"},
		{[]string{"0.json", "other.json"}, 3, `other.json": manifest: `},
		{nil, 2, "an argument is missing"},
	} {
		args := []string{"certify", "merge", "-o", file("bad.json")}
		for _, f := range tc.files {
			args = append(args, file(f))
		}
		if code, _, stderr := nrun("", args...); code != tc.code || !strings.Contains(stderr, tc.want) {
			t.Errorf("%v: exit %d: %s", tc.files, code, stderr)
		}
	}
	for _, s := range []string{"2/2", "-1/2", "1", "a/b", "0/0"} {
		if code, _, stderr := nrun("", "certify", dir, "--shard="+s); code != 2 {
			t.Errorf("--shard %s: exit %d: %s", s, code, stderr)
		}
	}
}

// TestCertifySign: a certificate is written with its signature or not at all,
// and never beside a signature of other bytes.
func TestCertifySign(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("SKIP: ssh-keygen is not installed")
	}
	dir := storyPack(t)
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cert := filepath.Join(dir, certificate.Name)
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	for _, tc := range []struct {
		args          []string
		code          int
		cert, signed  bool
		stdout, error string
	}{
		{[]string{"--sign", key + ".none"}, 1, false, false, "", "no such file"},
		{[]string{"--sign", "certify_test.go"}, 1, false, false, "", "ssh-keygen: "},
		{[]string{"--sign", key, "-o", "-"}, 2, false, false, "", "--sign has no place"},
		{[]string{"--sign", key}, 0, true, true, "signed in ", ""},
		{[]string{"--force"}, 0, true, false, "wrote ", ""},
		{[]string{"--force", "--sign", key, "--json"}, 0, true, true, `"format": "npack-certificate"`, ""},
	} {
		code, stdout, stderr := nrun("", append([]string{"certify", dir}, tc.args...)...)
		if code != tc.code || !strings.Contains(stdout, tc.stdout) || !strings.Contains(stderr, tc.error) {
			t.Errorf("%v: exit %d: %s%s", tc.args, code, stdout, stderr)
		}
		if there(cert) != tc.cert || there(cert+certificate.ExtSSH) != tc.signed {
			t.Errorf("%v: certificate %v, signature %v", tc.args, there(cert), there(cert+certificate.ExtSSH))
		}
	}
	pub, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "certificate-signers", append([]byte("me "), pub...))
	s := certificate.Signer{AllowedSigners: filepath.Join(dir, "certificate-signers")}
	if who, err := s.Check(t.Context(), cert, read(t, dir, certificate.Name)); who != "me" || err != nil {
		t.Error(who, err)
	}
}
