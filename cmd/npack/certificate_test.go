package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"npack/internal/certificate"
	"npack/pack"
	"npack/pack/native"
	"npack/ternary"
)

// certifiedPack makes a pack directory of the story model with a certificate
// like that of nrun certify, which has its own tests, and one byte of each kind
// of file to be damaged.
func certifiedPack(t *testing.T) (dir, cert string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"story.bin", "tokenizer.json"} {
		data, err := os.ReadFile(filepath.Join("../../testdata/story", name))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, name), data)
	}
	m, err := pack.BuildManifest(t.Context(), dir, "story.bin", nil)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, pack.ManifestName), m.Encode())
	f, err := native.Open(filepath.Join(dir, "story.bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := f.Model().Digests(t.Context(), ternary.WalkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := certificate.Certificate{Format: certificate.Format, Version: certificate.Version, Files: m.Files, Positions: 45, Numerics: 1,
		Model: certificate.Model{SHA256: d.Model.String()}, Formats: []certificate.FormatDigest{{Format: "native", File: "story.bin", Pin: m.Files["story.bin"]}}}
	for _, x := range d.Tensors {
		c.Model.Tensors = append(c.Model.Tensors, certificate.Tensor{Name: x.Name, SHA256: x.Digest.String()})
	}
	if c.Manifest, err = pack.HashFile(t.Context(), filepath.Join(dir, pack.ManifestName), nil); err != nil {
		t.Fatal(err)
	}
	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	cert = filepath.Join(dir, certificate.Name)
	put(t, cert, data)
	return dir, cert
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// npackRun runs a command in this process.
func npackRun(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(append([]string{"npack"}, args...), strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func TestVerifyCertificate(t *testing.T) {
	dir, cert := certifiedPack(t)
	code, stdout, stderr := npackRun("verify", dir, "--certificate", cert)
	if code != 0 || !strings.Contains(stdout, "3 files and model 1e11f4579475d3f6… are as certified; 45 positions compared, 0 divergences") ||
		!strings.Contains(stdout, "not read  signature") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	flip := func(name string, at int) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			data[(at+len(data))%len(data)] ^= 1
			put(t, filepath.Join(dir, name), data)
		}
	}
	edit := func(from, to string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, certificate.Name)
			data, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(data, []byte(from)) {
				t.Fatalf("%q is not in the certificate: %v", from, err)
			}
			put(t, path, bytes.Replace(data, []byte(from), []byte(to), 1))
		}
	}
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		code   int
		want   string
	}{
		// The last value of the file is a row sum of the head, the one before a scale.
		{"scale", func(t *testing.T, dir string) { flipScale(t, filepath.Join(dir, "story.bin")) }, 3, `story.bin": tensor "token_embd": 1 of `},
		{"row sum", flip("story.bin", -1), 3, `story.bin": sha256 `},
		{"tokenizer", flip("tokenizer.json", 5000), 3, `tokenizer.json": sha256 `},
		{"manifest", func(t *testing.T, dir string) {
			path := filepath.Join(dir, pack.ManifestName)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			put(t, path, append(data, '\n')) // says the same
		}, 3, `MANIFEST.json": `},
		{"missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "tokenizer.json")) }, 5, `tokenizer.json": the file is missing, expected 264573 bytes, as the certificate says`},
		{"other format", edit(certificate.Format, "something-else"), 4, `format: "something-else", expected "npack-certificate"`},
		{"newer", edit(`"version": 1`, `"version": 2`), 6, "version: version 2, expected 1 to 1"},
		{"name", edit(`"file": "story.bin"`, `"file": "../../etc/passwd"`), 4, `formats[0]: the name is "../../etc/passwd"`},
		{"files name", edit(`"tokenizer.json": {`, `"/etc/passwd": {`), 4, `files["/etc/passwd"]: the name leads out of the directory`},
		{"digest", edit(`"sha256": "1e11`, `"sha256": "xx11`), 4, "model: sha256 is"},
		{"divergences", edit(`"divergences": 0`, `"divergences": 1`), 3, "this certifies nothing"},
		{"type", edit(`"positions": 45`, `"positions": []`), 4, "positions: a array, expected int"},
		{"cut", func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, certificate.Name), []byte(`{"format": "npack-`))
		}, 5, "ends too early"},
		{"objects", func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, certificate.Name), []byte(`{"runs":[`+strings.Repeat("{},", 200_000)+`{}]}`))
		}, 4, "200002 objects, expected at most 100000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, cert := certifiedPack(t)
			tc.damage(t, dir)
			code, stdout, stderr := npackRun("verify", "--certificate", cert, dir)
			if code != tc.code || !strings.Contains(stderr, tc.want) {
				t.Errorf("exit %d, want %d, %q: %s%s", code, tc.code, tc.want, stdout, stderr)
			}
		})
	}
	for _, args := range [][]string{
		{"verify", dir, "--allowed-signers", "x"},
		{"verify", dir, "--certificate", cert, "--allowed-signers", "x", "--minisign-key", "y"},
		{"verify", dir, "--certificate", cert, "--signer", "me"},
		{"verify", filepath.Join(dir, "story.bin"), "--certificate", cert},
	} {
		if code, _, stderr := npackRun(args...); code != 2 {
			t.Errorf("%v: exit %d: %s", args, code, stderr)
		}
	}
}

// flipScale flips the lowest bit of a scale of the embedding.
func flipScale(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := native.OpenBytes(path, data)
	if err != nil {
		t.Fatal(err)
	}
	m := f.Model()
	m.Head.Scale[0] *= 1.0000001
	var out bytes.Buffer
	if err := native.Write(&out, m); err != nil {
		t.Fatal(err)
	}
	put(t, path, out.Bytes())
}

func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("SKIP: %s is not installed", program)
	}
}

func TestVerifySSHSignature(t *testing.T) {
	need(t, "ssh-keygen")
	dir, cert := certifiedPack(t)
	keys := t.TempDir()
	for _, name := range []string{"alice", "mallory"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", filepath.Join(keys, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	pub, err := os.ReadFile(filepath.Join(keys, "alice.pub"))
	if err != nil {
		t.Fatal(err)
	}
	signers := filepath.Join(keys, "signers")
	put(t, signers, append([]byte(`alice@example.org namespaces="npack-certificate" `), pub...))
	check := func(code int, want string, args ...string) {
		t.Helper()
		got, stdout, stderr := npackRun(append([]string{"verify", "--certificate", cert, "--allowed-signers", signers, dir}, args...)...)
		if got != code || !strings.Contains(stdout+stderr, want) {
			t.Errorf("exit %d, want %d, %q: %s%s", got, code, want, stdout, stderr)
		}
	}
	check(5, `certificate.json.sig": the signature is not there`)
	sign := func(key string) {
		t.Helper()
		data, err := os.ReadFile(cert)
		if err != nil {
			t.Fatal(err)
		}
		sig, ext, err := certificate.Sign(t.Context(), data, filepath.Join(keys, key), nil, nil)
		if err != nil || ext != certificate.ExtSSH {
			t.Fatal(ext, err)
		}
		put(t, cert+ext, sig)
	}
	sign("alice")
	check(0, "signature  by alice@example.org")
	check(0, "signature  by alice@example.org", "--signer", "alice@example.org")
	check(3, "the signature is not right", "--signer", "bob@example.org")
	sign("mallory")
	check(3, "the signature is not right")
	sign("alice")
	data, _ := os.ReadFile(cert)
	put(t, cert, bytes.Replace(data, []byte(`"positions": 45`), []byte(`"positions": 46`), 1))
	check(3, "the signature is not right")
	// One that was made for another purpose is none for a certificate.
	os.Remove(cert + ".sig")
	if out, err := exec.Command("ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", filepath.Join(keys, "alice"), cert).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	check(3, "the signature is not right")
}

func TestVerifyMinisign(t *testing.T) {
	need(t, "minisign")
	dir, cert := certifiedPack(t)
	keys := t.TempDir()
	cmd := exec.Command("minisign", "-G", "-W", "-p", filepath.Join(keys, "k.pub"), "-s", filepath.Join(keys, "k.key"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	sig, ext, err := certificate.Sign(t.Context(), data, filepath.Join(keys, "k.key"), strings.NewReader(""), &said)
	if err != nil || ext != certificate.ExtMinisign {
		t.Fatal(ext, err, said.String())
	}
	put(t, cert+ext, sig)
	pub, err := os.ReadFile(filepath.Join(keys, "k.pub"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(pub)), "\n")
	for _, key := range []string{filepath.Join(keys, "k.pub"), lines[len(lines)-1]} {
		if code, stdout, stderr := npackRun("verify", "--certificate", cert, "--minisign-key", key, dir); code != 0 || !strings.Contains(stdout, "by minisign key") {
			t.Errorf("exit %d: %s%s", code, stdout, stderr)
		}
	}
	put(t, cert, append(data, '\n'))
	if code, _, stderr := npackRun("verify", "--certificate", cert, "--minisign-key", filepath.Join(keys, "k.pub"), dir); code != 3 {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
