// Package hub knows how a model hub lays out its repositories: addresses, the
// list of files with their sizes and sums, the token, and the cache that the
// hub's own programs keep on this machine. It only reads that cache.
package hub

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"npack/pack"
)

// Ref names a repository on a hub, or one file in it.
type Ref struct {
	Endpoint string // "https://host", perhaps with a path, without a slash at the end
	Repo     string // "owner/name"
	Revision string // a branch, tag or commit
	File     string // "" for the repository
}

// String is how a user would type it.
func (r Ref) String() string {
	s := r.Repo
	if r.Revision != defaultRevision {
		s += "@" + r.Revision
	}
	return s
}

const (
	// DefaultEndpoint is used where HF_ENDPOINT is not set.
	DefaultEndpoint = "https://huggingface.co"
	defaultRevision = "main"
)

// repoName is owner/name as the hub allows them.
var repoName = regexp.MustCompile(`^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}$`)

// Parse reads "owner/name[@revision]" or the address of a repository or file
// on the hub at endpoint, as a browser shows it. It reports false for
// addresses of other servers.
func Parse(arg, endpoint string) (Ref, bool, error) {
	for _, host := range []string{"huggingface.co/", "hf.co/"} {
		if strings.HasPrefix(arg, host) {
			arg = "https://" + arg
		}
	}
	if !strings.Contains(arg, "://") {
		repo, revision, at := strings.Cut(arg, "@")
		if !at {
			revision = defaultRevision
		}
		if !repoName.MatchString(repo) || strings.Contains(repo, "..") || !validRevision(revision) {
			return Ref{}, false, fmt.Errorf("%q is neither an address (https://…) nor a repository (owner/name, owner/name@revision)", arg)
		}
		return Ref{endpoint, repo, revision, ""}, true, nil
	}
	u, err := url.Parse(arg)
	if err != nil || u.Host == "" {
		return Ref{}, false, fmt.Errorf("%q is not an address", arg)
	}
	base, path, ok := endpointOf(u, endpoint)
	if !ok {
		return Ref{}, false, nil
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i := range parts {
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return Ref{}, false, fmt.Errorf("%q is not an address: %w", arg, err)
		}
	}
	ref := Ref{Endpoint: base, Revision: defaultRevision}
	if len(parts) >= 2 {
		ref.Repo = parts[0] + "/" + parts[1]
	}
	if !repoName.MatchString(ref.Repo) || parts[0] == "datasets" || parts[0] == "spaces" {
		return Ref{}, false, fmt.Errorf("%q is not the address of a model on the hub (%s/OWNER/NAME)", arg, base)
	}
	if len(parts) > 2 {
		switch parts[2] {
		case "resolve", "blob", "raw", "tree":
		default:
			return Ref{}, false, fmt.Errorf("%q is a page of the hub that has no files", arg)
		}
		if len(parts) > 3 {
			ref.Revision = parts[3]
		}
		if len(parts) > 4 && parts[2] != "tree" {
			ref.File = strings.Join(parts[4:], "/")
		}
	}
	if !validRevision(ref.Revision) || ref.File != "" && !SafeName(ref.File) {
		return Ref{}, false, fmt.Errorf("%q: bad revision or file name", arg)
	}
	return ref, true, nil
}

// endpointOf tells which hub an address is on, and the path there.
func endpointOf(u *url.URL, endpoint string) (base, path string, ok bool) {
	if e, err := url.Parse(endpoint); err == nil && strings.EqualFold(e.Scheme+"://"+e.Host, u.Scheme+"://"+u.Host) {
		if path, ok := strings.CutPrefix(u.EscapedPath(), e.EscapedPath()); ok {
			return endpoint, path, true
		}
	}
	switch strings.ToLower(u.Host) {
	case "huggingface.co", "www.huggingface.co", "hf.co":
		return DefaultEndpoint, u.EscapedPath(), true
	}
	return "", "", false
}

func validRevision(s string) bool {
	return s != "" && len(s) <= 200 && !strings.Contains(s, "..") && !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune(`\?*[^~:`, r)
	})
}

// SafeName reports whether a name from a server is a path inside a directory
// on every system.
func SafeName(name string) bool {
	return name != "." && len(name) <= 1024 && filepath.IsLocal(filepath.FromSlash(name)) && filepath.Clean(filepath.FromSlash(name)) == filepath.FromSlash(name) &&
		!strings.ContainsAny(name, `\:`) && !strings.ContainsFunc(name, unicode.IsControl)
}

// FileURL is where the bytes of a file are. commit pins them.
func (r Ref) FileURL(commit, name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return r.Endpoint + "/" + r.Repo + "/resolve/" + url.PathEscape(commit) + "/" + strings.Join(parts, "/")
}

// listURL is where the list of files is.
func (r Ref) listURL() string {
	return r.Endpoint + "/api/models/" + r.Repo + "/revision/" + url.PathEscape(r.Revision) + "?blobs=true"
}

func corrupt(address, found, expected string) error {
	return &pack.Error{Kind: pack.ErrCorrupt, File: address, Offset: -1, Found: found, Expected: expected,
		Hint: "the hub's answer is of no use; HF_ENDPOINT says which hub is asked"}
}
