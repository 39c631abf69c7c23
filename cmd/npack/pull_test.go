package main

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"npack/internal/flaky"
	"npack/testdata/story"
)

// serve starts, for the rest of the script:
//
//	$URL  flaky, with 3 MiB of which it sends 1 MiB at a time
//	$CDN  /MODE/NAME: the same modes for the files of testdata/story and testdata/tv4z
//	$HUB  a hub with the repository owner/story, which sends large files from $CDN,
//	      where lines drop; private/story, which wants the token "sesame"; and
//	      hostile/names
//
// $FLAKY_SHA256 is the sha256 of the 3 MiB.
func serve(ts *testscript.TestScript, neg bool, args []string) {
	start := func(name string, h http.Handler) string {
		s := httptest.NewServer(h)
		ts.Defer(s.Close)
		ts.Setenv(name, s.URL)
		return s.URL
	}
	body := flaky.Body(3 << 20)
	ts.Setenv("FLAKY_SHA256", fmt.Sprintf("%x", sha256.Sum256(body)))
	start("URL", &flaky.Server{Body: body, Part: 1 << 20})
	data := ts.Getenv("DATA")
	cdn := start("CDN", &cdnServer{dirs: []string{filepath.Join(data, "story"), filepath.Join(data, "tv4z")}})
	start("HUB", &hubServer{dir: filepath.Join(data, "story"), cdn: cdn})
}

// cdnServer serves files as flaky does.
type cdnServer struct {
	dirs []string
	mu   sync.Mutex
	made map[string]*flaky.Server
}

func (s *cdnServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		http.Error(w, "a token came here", http.StatusTeapot)
		return
	}
	s.mu.Lock()
	f := s.made[r.URL.Path]
	if f == nil {
		for _, dir := range s.dirs {
			if b, err := os.ReadFile(filepath.Join(dir, filepath.Base(r.URL.Path))); err == nil {
				f = &flaky.Server{Body: b, Part: 1 << 20}
			}
		}
		if s.made == nil {
			s.made = map[string]*flaky.Server{}
		}
		s.made[r.URL.Path] = f
	}
	s.mu.Unlock()
	if f == nil {
		http.NotFound(w, r)
		return
	}
	f.ServeHTTP(w, r)
}

// hubServer is a hub as far as pull sees one.
type hubServer struct{ dir, cdn string }

const hubCommit = "89abcdef0123456789abcdef0123456789abcdef"

func (s *hubServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if strings.Contains(path, "private/") && r.Header.Get("Authorization") != "Bearer sesame" {
		w.Header().Set("X-Error-Message", "Repository not found")
		http.Error(w, "Repository not found", http.StatusUnauthorized)
		return
	}
	path = strings.Replace(path, "private/", "owner/", 1)
	file, isFile := strings.CutPrefix(path, "owner/story/resolve/"+hubCommit+"/")
	switch {
	case path == "api/models/owner/story/revision/main" || path == "api/models/owner/story/revision/v1":
		s.list(w)
	case path == "api/models/hostile/names/revision/main":
		fmt.Fprintf(w, `{"sha":%q,"siblings":[{"rfilename":"../../evil.bin"}]}`, hubCommit)
	case isFile && isLFS(file):
		w.Header().Set("X-Repo-Commit", hubCommit)
		http.Redirect(w, r, s.cdn+"/drop/"+url.PathEscape(file)+"?signature=secret", http.StatusFound)
	case isFile:
		w.Header().Set("X-Repo-Commit", hubCommit)
		http.ServeFile(w, r, filepath.Join(s.dir, filepath.Base(file)))
	default:
		http.NotFound(w, r)
	}
}

func isLFS(name string) bool {
	return strings.HasSuffix(name, ".bin") || strings.HasSuffix(name, ".tv4z")
}

func (s *hubServer) list(w http.ResponseWriter) {
	type lfs struct {
		SHA256 string `json:"sha256"`
		Size   int    `json:"size"`
	}
	type file struct {
		Name string `json:"rfilename"`
		Size int    `json:"size"`
		Blob string `json:"blobId"`
		LFS  *lfs   `json:"lfs,omitempty"`
	}
	var files []file
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(s.dir, e.Name()))
		if err != nil {
			panic(err)
		}
		f := file{Name: e.Name(), Size: len(b), Blob: gitBlob(b)}
		if isLFS(e.Name()) {
			f.LFS = &lfs{fmt.Sprintf("%x", sha256.Sum256(b)), len(b)}
			f.Blob = gitBlob([]byte("the pointer"))
		}
		files = append(files, f)
	}
	json.NewEncoder(w).Encode(map[string]any{"id": "owner/story", "sha": hubCommit, "siblings": files})
}

func gitBlob(b []byte) string {
	return fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(b), b)))
}

// TestPullEnds ends a pull while the server is silent, by a kill, for which
// nothing can prepare, and by Ctrl-C, and runs it again.
func TestPullEnds(t *testing.T) {
	transport, err := os.ReadFile("../../testdata/story/story.tv4z")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, out string
		body      []byte
		flags     []string
		want      []byte
		signal    os.Signal
	}{
		{"plain", "m.bin", story.Container, nil, story.Container, os.Kill},
		{"one connection", "m.bin", story.Container, []string{"--connections", "1"}, story.Container, os.Kill},
		{"transport kept", "m.tv4z", transport, []string{"--no-expand"}, transport, os.Kill},
		{"expanded", "m.bin", transport, nil, story.Container, os.Kill},
		{"interrupted", "m.bin", story.Container, nil, story.Container, os.Interrupt},
		{"expanded, interrupted", "m.bin", transport, nil, story.Container, os.Interrupt},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.signal == os.Interrupt && runtime.GOOS == "windows" {
				t.Skip("a process cannot be sent Ctrl-C here")
			}
			s := &flaky.Server{Body: tc.body, Part: 2 << 20, Silent: make(chan bool, 9)}
			mode := "/stall"
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path = mode + r.URL.Path
				s.ServeHTTP(w, r)
			}))
			defer h.Close()
			out := filepath.Join(t.TempDir(), tc.out)
			name := "/" + tc.out
			if strings.HasPrefix(tc.name, "expanded") {
				name = "/m.tv4z"
			}
			pull := func() *exec.Cmd {
				cmd := exec.Command(os.Args[0])
				cmd.Args = append([]string{"npack", "pull", "--json", h.URL + name, out}, tc.flags...)
				cmd.Env = append(os.Environ(), "HF_HOME="+t.TempDir(), "HF_TOKEN=", "HUGGING_FACE_HUB_TOKEN=", "HF_ENDPOINT=")
				cmd.Stderr = os.Stderr
				return cmd
			}
			first := pull()
			var said bytes.Buffer
			first.Stderr = &said
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			<-s.Silent
			// The journal follows within a second.
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				if b, err := os.ReadFile(out + ".part.json"); err == nil && (bytes.Contains(b, []byte(`"from":0`)) || bytes.Contains(b, []byte(`"crc32c"`))) {
					break
				}
				if time.Now().After(deadline) {
					t.Error("no journal")
					break
				}
			}
			if err := first.Process.Signal(tc.signal); err != nil {
				t.Error(err)
			}
			err := first.Wait()
			const interrupted = "npack: error: interrupted\nnpack: hint: what came is kept: run the same command again to go on\n"
			if tc.signal == os.Interrupt && (first.ProcessState.ExitCode() != 130 || said.String() != interrupted) || err == nil {
				t.Errorf("%v: %s", err, said.String())
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("the file is there before it is complete")
			}

			mode = "/ok"
			before := len(s.Requests())
			var stdout bytes.Buffer
			second := pull()
			second.Stdout = &stdout
			if err := second.Run(); err != nil {
				t.Fatal(err)
			}
			if got, _ := os.ReadFile(out); !bytes.Equal(got, tc.want) {
				t.Errorf("%d bytes, not those of the model", len(got))
			}
			var result struct {
				Files []struct{ Resumed, Fetched, Restarts int64 }
			}
			if err := json.Unmarshal(stdout.Bytes(), &result); err != nil || len(result.Files) != 1 {
				t.Fatalf("%s: %v", stdout.Bytes(), err)
			}
			f := result.Files[0]
			if r := s.Requests()[before]; f.Resumed == 0 || f.Restarts != 0 || f.Fetched >= int64(len(tc.body)) || !strings.HasPrefix(r.Range, "bytes=") || r.IfRange != `"one"` {
				t.Errorf("the second run began with %+v: %+v", r, f)
			}
		})
	}
}
