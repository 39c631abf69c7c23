package hub

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"npack/internal/fetch"
)

// Hub is how the user's machine reaches a hub.
type Hub struct {
	Endpoint string // HF_ENDPOINT
	Token    string // "" for none
	Cache    string // directory of the hub's own programs, "" for none
}

// FromEnv reads the variables that the hub's own programs read: HF_ENDPOINT;
// HF_TOKEN, HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH; HF_HUB_CACHE, HF_HOME,
// XDG_CACHE_HOME. The home directory may be "".
func FromEnv(getenv func(string) string, home string) (Hub, error) {
	h := Hub{Endpoint: strings.TrimRight(getenv("HF_ENDPOINT"), "/")}
	if h.Endpoint == "" {
		h.Endpoint = DefaultEndpoint
	}
	if u, err := url.Parse(h.Endpoint); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		return h, fmt.Errorf("HF_ENDPOINT is %q, not an address such as %s", h.Endpoint, DefaultEndpoint)
	}
	dir := getenv("HF_HOME")
	if dir == "" {
		cache := getenv("XDG_CACHE_HOME")
		if cache == "" && home != "" {
			cache = filepath.Join(home, ".cache")
		}
		if cache != "" {
			dir = filepath.Join(cache, "huggingface")
		}
	}
	if h.Cache = getenv("HF_HUB_CACHE"); h.Cache == "" && dir != "" {
		h.Cache = filepath.Join(dir, "hub")
	}
	var err error
	h.Token, err = token(getenv, dir)
	return h, err
}

func token(getenv func(string) string, dir string) (string, error) {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if t := strings.TrimSpace(getenv(name)); t != "" {
			return checkToken(name, t)
		}
	}
	path := getenv("HF_TOKEN_PATH")
	if path == "" {
		if dir == "" {
			return "", nil
		}
		path = filepath.Join(dir, "token")
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("the hub's token: %w", err)
	}
	return checkToken(path, strings.TrimSpace(string(b)))
}

// checkToken keeps what cannot be a token out of the request, and out of the
// error.
func checkToken(source, t string) (string, error) {
	if len(t) > 1024 || strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s does not hold a token: %d bytes, or characters that no token has", source, len(t))
	}
	return t, nil
}

// Origin is scheme and host of the endpoint, to which alone the token goes.
func (h Hub) Origin() string {
	u, err := url.Parse(h.Endpoint)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// File is one file of a repository.
type File struct {
	Name   string // path with slashes
	Size   int64  // -1 if the hub does not say
	SHA256 string // of files in LFS, else ""
	Git    string // the name of the blob of files that are not in LFS, else ""
}

// Listing is what a repository holds at one commit.
type Listing struct {
	Commit string
	Files  []File
}

// maxListing bounds the list's size in bytes: some 50,000 files.
const maxListing = 16 << 20

// List asks the hub what ref's repository holds.
func List(ctx context.Context, c *fetch.Client, ref Ref) (*Listing, error) {
	address := ref.listURL()
	b, err := c.Bytes(ctx, address, maxListing)
	if err != nil {
		return nil, err
	}
	return parseListing(fetch.Public(address), b)
}

// parseListing decodes and checks the hub's answer.
func parseListing(address string, b []byte) (*Listing, error) {
	var answer struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
			Size *int64 `json:"size"`
			Blob string `json:"blobId"`
			LFS  *struct {
				SHA256 string `json:"sha256"`
				Size   *int64 `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, corrupt(address, fmt.Sprintf("the list of files is not what a hub sends: %v", err), "a JSON object")
	}
	if !isHex(answer.SHA, 40) {
		return nil, corrupt(address, fmt.Sprintf("the commit is %.80q", answer.SHA), "40 hex digits")
	}
	l := &Listing{Commit: answer.SHA}
	for _, s := range answer.Siblings {
		f := File{Name: s.Name, Size: -1}
		if !SafeName(s.Name) {
			return nil, corrupt(address, fmt.Sprintf("the repository holds a file named %.200q", s.Name), "names inside the repository")
		}
		if s.Size != nil {
			f.Size = *s.Size
		}
		if s.LFS != nil {
			if !isHex(s.LFS.SHA256, 64) {
				return nil, corrupt(address, fmt.Sprintf("%q: sha256 is %.80q", s.Name, s.LFS.SHA256), "64 hex digits")
			}
			f.SHA256 = strings.ToLower(s.LFS.SHA256)
			if s.LFS.Size != nil {
				f.Size = *s.LFS.Size
			}
		} else if isHex(s.Blob, 40) {
			f.Git = strings.ToLower(s.Blob)
		}
		if f.Size < -1 {
			return nil, corrupt(address, fmt.Sprintf("%q: size is %d", s.Name, f.Size), "0 or more")
		}
		l.Files = append(l.Files, f)
	}
	return l, nil
}

func isHex(s string, n int) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == n
}

// Cached returns a file of the hub's own cache that should have f's bytes, or
// "". Only its size is compared. The cache holds
//
//	models--OWNER--NAME/blobs/SUM               the bytes, SUM being sha256 or git blob
//	models--OWNER--NAME/snapshots/COMMIT/NAME   a link to a blob, or a copy of it
//
// so that a blob that another revision brought serves as well.
func (h Hub) Cached(ref Ref, commit string, f File) string {
	if h.Cache == "" || f.Size < 0 {
		return ""
	}
	dir := filepath.Join(h.Cache, "models--"+strings.ReplaceAll(ref.Repo, "/", "--"))
	candidates := []string{filepath.Join(dir, "snapshots", commit, filepath.FromSlash(f.Name))}
	for _, sum := range []string{f.SHA256, f.Git} {
		if sum != "" {
			candidates = append(candidates, filepath.Join(dir, "blobs", sum))
		}
	}
	for _, path := range candidates {
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Size() == f.Size {
			return path
		}
	}
	return ""
}
