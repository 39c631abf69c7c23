package certificate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"npack/pack"
)

// Namespace is what ssh-keygen binds a signature to, so that one made for
// another purpose is none for a certificate.
const Namespace = "npack-certificate"

// Extensions of signatures, which lie beside the certificate.
const (
	ExtSSH      = ".sig"
	ExtMinisign = ".minisig"
)

// minisignHead begins a secret key of minisign.
const minisignHead = "untrusted comment:"

// Sign signs data with the key at path, an SSH key (or the .pub of one that an
// agent holds) or a secret key of minisign, and returns the signature and its
// extension. The work is done by ssh-keygen or minisign, which may ask for a
// passphrase on the terminal.
func Sign(ctx context.Context, data []byte, key string, in io.Reader, errs io.Writer) (signature []byte, ext string, err error) {
	f, err := os.Open(key)
	if err != nil {
		return nil, "", err
	}
	head := make([]byte, len(minisignHead))
	_, err = io.ReadFull(f, head)
	f.Close()
	if err == nil && string(head) == minisignHead {
		signature, err = signMinisign(ctx, data, key, in, errs)
		return signature, ExtMinisign, err
	}
	signature, err = tool(exec.CommandContext(ctx, "ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", Namespace), data)
	return signature, ExtSSH, err
}

func signMinisign(ctx context.Context, data []byte, key string, in io.Reader, errs io.Writer) ([]byte, error) {
	dir, err := os.MkdirTemp("", "npack-sign")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, Name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "minisign", "-S", "-s", key, "-m", file, "-x", file+ExtMinisign, "-t", Namespace)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, errs, io.MultiWriter(errs, &said)
	err = cmd.Run()
	if err := toolError(cmd, err, said.String()); err != nil {
		return nil, err
	}
	return os.ReadFile(file + ExtMinisign)
}

// tool runs a program with data as its input and returns its output.
func tool(cmd *exec.Cmd, data []byte) ([]byte, error) {
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(data), &out, &said
	err := cmd.Run()
	return out.Bytes(), toolError(cmd, err, said.String()+out.String())
}

// toolError words what a program that failed said.
func toolError(cmd *exec.Cmd, err error, said string) error {
	name := filepath.Base(cmd.Args[0])
	switch said = strings.Join(strings.Fields(said), " "); {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%s is not installed, which signs and checks signatures: %w", name, err)
	case said == "":
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%s: %s: %w", name, said, err)
}

// Signer says whose signature is wanted.
type Signer struct {
	AllowedSigners string // file of ssh-keygen's ALLOWED SIGNERS, or ""
	Identity       string // principal in it; "" takes the one whose key it is
	MinisignKey    string // public key of minisign or a file with one, or ""
}

// Check checks the signature that lies beside the certificate at path, whose
// bytes are data, and returns who made it. A signature that is not there is an
// [*pack.Error] of kind [pack.ErrTruncated], one that is wrong of kind
// [pack.ErrNotEqual].
func (s *Signer) Check(ctx context.Context, path string, data []byte) (who string, err error) {
	ext := ExtSSH
	if s.AllowedSigners == "" {
		ext = ExtMinisign
	}
	sig := path + ext
	if _, err := os.Stat(sig); errors.Is(err, fs.ErrNotExist) {
		return "", &pack.Error{Kind: pack.ErrTruncated, File: sig, Offset: -1, Found: "the signature is not there", Expected: "one beside the certificate",
			Hint: "fetch it, or leave the key out to check the digests alone"}
	}
	if ext == ExtSSH {
		return s.checkSSH(ctx, sig, data)
	}
	return s.checkMinisign(ctx, path, sig)
}

func (s *Signer) checkSSH(ctx context.Context, sig string, data []byte) (string, error) {
	if _, err := os.Stat(s.AllowedSigners); err != nil {
		return "", err // ssh-keygen's message is the same as for a stranger
	}
	who := s.Identity
	if who == "" {
		out, err := tool(exec.CommandContext(ctx, "ssh-keygen", "-Y", "find-principals", "-s", sig, "-f", s.AllowedSigners), nil)
		if err != nil {
			return "", badSignature(sig, err)
		}
		who, _, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
		who, _, _ = strings.Cut(who, ",") // a key may have several names
	}
	_, err := tool(exec.CommandContext(ctx, "ssh-keygen", "-Y", "verify", "-f", s.AllowedSigners, "-I", who, "-n", Namespace, "-s", sig), data)
	return who, badSignature(sig, err)
}

func (s *Signer) checkMinisign(ctx context.Context, path, sig string) (string, error) {
	flag := "-P"
	if _, err := os.Stat(s.MinisignKey); err == nil {
		flag = "-p"
	}
	_, err := tool(exec.CommandContext(ctx, "minisign", "-V", "-q", "-m", path, "-x", sig, flag, s.MinisignKey), nil)
	return "minisign key " + s.MinisignKey, badSignature(sig, err)
}

// badSignature is the error for a signature that a program did not accept.
func badSignature(sig string, err error) error {
	if err == nil || errors.Is(err, exec.ErrNotFound) || errors.Is(err, context.Canceled) {
		return err
	}
	return &pack.Error{Kind: pack.ErrNotEqual, File: sig, Offset: -1, Found: "the signature is not right", Expected: "that of an allowed signer over this certificate", Err: err}
}
