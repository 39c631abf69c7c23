package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"npack/cpu"
	"npack/internal/machine"
	"npack/internal/race"
	"npack/pack/native"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/testdata/story"
)

// fakeLlama is a program that speaks as llama.cpp's server does, with the story
// model behind it; flags make it wrong, slow or mortal.
func fakeLlama() {
	port := flag.Int("port", 0, "")
	wrong := flag.Int("wrong", -1, "change this token of each answer")
	short := flag.Int("short", 0, "end each answer after so many tokens")
	die := flag.Int("die", 0, "exit in the middle of this answer, from 1")
	slow := flag.Duration("slow", 0, "how long it loads, and waits before each answer")
	flag.Parse()
	if err := serveFake(*port, *wrong, *short, *die, *slow); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveFake(port, wrong, short, die int, slow time.Duration) error {
	m, err := native.OpenBytes("story.bin", story.Container)
	if err != nil {
		return err
	}
	inst, err := cpu.Backend{}.Load(context.Background(), m.Model(), backend.Options{Threads: 1})
	if err != nil {
		return err
	}
	s, err := engine.New(inst, 0).NewSession(256)
	if err != nil {
		return err
	}
	loaded, n := time.Now().Add(slow), 0
	http.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if time.Now().Before(loaded) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("POST /completion", func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Prompt      []int32 `json:"prompt"`
			NPredict    int     `json:"n_predict"`
			Temperature float64 `json:"temperature"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Temperature != 0 {
			http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
			return
		}
		if n++; n == die {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"content":"Once`)
			_ = http.NewResponseController(w).Flush()
			fmt.Fprintln(os.Stderr, "GGML_ASSERT(false) failed")
			os.Exit(134)
		}
		time.Sleep(slow)
		_ = s.Reset()
		res, err := s.Generate(r.Context(), engine.Request{Prompt: req.Prompt, MaxTokens: req.NPredict})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if wrong >= 0 && wrong < len(res.IDs) {
			res.IDs[wrong] = (res.IDs[wrong] + 1) % 4096
		}
		if short > 0 {
			res.IDs = res.IDs[:min(short, len(res.IDs))]
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"content": "", "tokens": res.IDs, "timings": map[string]any{
			"prompt_n": len(req.Prompt), "prompt_ms": res.Prefill.Seconds() * 1000, "predicted_n": len(res.IDs), "predicted_ms": res.Decode.Seconds() * 1000}})
	})
	return http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", port), nil)
}

// fakeBench prints what llama-bench prints.
func fakeBench() {
	p, n := flag.Int("p", -1, ""), flag.Int("n", -1, "")
	flag.Int("d", 0, "")
	flag.Int("r", 5, "")
	flag.String("o", "md", "")
	flag.Parse()
	fmt.Printf(`[{"n_prompt": %d, "n_gen": %d, "avg_ts": 123.4}]`, *p, *n)
}

// runRaceJSON runs a race and returns its report.
func runRaceJSON(t *testing.T, args ...string) *race.Report {
	t.Helper()
	code, out, errs := nrun("", append([]string{"race", "--json"}, args...)...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	r := &race.Report{}
	if err := json.Unmarshal([]byte(out), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Container and GGUF file of the story model, its backends and kernels make the
// same tokens, those that are stored.
func TestRaceFormats(t *testing.T) {
	gguf := storyGGUF(t)
	r := runRaceJSON(t, "--run", "container:", "--run", "gguf: model="+quoteWord(gguf), "--run", "reference: backend=reference threads=1", "--run", "f32: kv=f32 speed-only=yes",
		"--rounds", "2", "-p", "Once upon a time there was a king who had three sons.", "-p", "A Fox and a Crow", "-n", "5")
	if r.Identity.Reference != "container" || r.Identity.Tokens != 10 || len(r.Rounds) != 2 || !r.Complete {
		t.Errorf("%+v", r.Identity)
	}
	for i, status := range []string{race.Reference, race.Equal, race.Equal} {
		if c := r.Identity.Results[i]; c.Status != status || c.Tokens != 10 || c.SHA256 != r.Identity.Results[0].SHA256 {
			t.Errorf("%+v, want %s", c, status)
		}
	}
	if d := r.Contestants[1]; d.Format != "gguf" || d.Backend != "cpu" || d.Threads < 1 || r.Contestants[0].Format != "native" || r.Contestants[2].Backend != "reference" {
		t.Errorf("%+v", r.Contestants)
	}
	if got := [][]string{r.Rounds[0].Order, r.Rounds[1].Order}; !cmp.Equal(got, [][]string{{"container", "gguf", "reference", "f32"}, {"gguf", "reference", "f32", "container"}}) {
		t.Errorf("turns %v", got)
	}
	for _, s := range r.Rounds[1].Samples {
		if w := s.Total; w.Prompts != 2 || w.Tokens != 8 || w.PromptTokens != len(r.Prompts[0].IDs)+len(r.Prompts[1].IDs) {
			t.Errorf("%+v", s)
		}
	}
}

// Drafted contestants make the same tokens, and every pass gives one more than it
// kept.
func TestRaceDrafted(t *testing.T) {
	r := runRaceJSON(t, "--run", "plain:", "--run", "model: draft=../../testdata/storydraft draft-length=3", "--run", "auto: draft=../../testdata/storydraft", "--run", "lookup: draft=lookup draft-length=7",
		"--rounds", "1", "--class", "prose,long context", "-n", "24")
	for i, c := range r.Identity.Results[1:] {
		w := r.Rounds[0].Samples[i+1].Total
		if c.Status != race.Equal || w.Passes+w.Kept != w.Tokens || w.Kept > w.Drafted || w.Passes == 0 {
			t.Errorf("%+v, %+v", c, w)
		}
	}
	if w := r.Rounds[0].Samples[1].Total; w.Kept < w.Tokens/3 || w.DraftSeconds <= 0 {
		t.Errorf("the draft is kept less than the model card says: %+v", w)
	}
	if w := r.Rounds[0].Samples[0].Total; w.Passes != 0 || r.Contestants[2].DraftLength != "auto" {
		t.Errorf("plain: %+v", w)
	}
}

// quoteWord keeps a path in one word of a definition.
func quoteWord(s string) string { return `"` + s + `"` }

// A race that was interrupted goes on where it was: the rounds before stay as
// they are.
func TestRaceResume(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIP: Windows cannot send Ctrl-C to one process")
	}
	path := filepath.Join(t.TempDir(), "race.json")
	args := []string{"race", "--run", "one: threads=1", "--run", "two: threads=2", "-p", "Once upon a time", "-n", "8", "-o", path}
	cmd := command(t, append(args, "--rounds", "10000")...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, err := os.Stat(path); err != nil; _, err = os.Stat(path) {
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 130 || !strings.HasSuffix(errs.String(), "nrun: error: interrupted\nnrun: hint: go on with: nrun race --resume "+path+"\n") {
		t.Fatalf("%v, %s", err, errs.String())
	}
	before, err := race.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	n := len(before.Rounds)
	if n == 0 || before.Complete || strings.Contains(out.String(), "medians") {
		t.Fatalf("%d rounds: %s", n, out.String())
	}
	// The file alone says what the race is about. This process is another build
	// than the test binary's nrun in nothing.
	r := runRaceJSON(t, "--resume", path, "--rounds", fmt.Sprint(n+1))
	if len(r.Rounds) != n+1 || !r.Complete || !cmp.Equal(r.Rounds[:n], before.Rounds) || r.LoadBefore != before.LoadBefore {
		t.Errorf("%d rounds after %d", len(r.Rounds), n)
	}
	if saved, err := race.Read(path); err != nil || !cmp.Equal(saved, r) {
		t.Errorf("%v: the file is not what was printed", err)
	}
	// All rounds are there: nothing is measured, and what it comes to is printed.
	code, text, stderr := nrun("", append(args[:len(args)-2:len(args)-2], "--resume", path, "--rounds", fmt.Sprint(n+1))...)
	if code != 0 || strings.Count(text, "\n    1  ") != 2 || !strings.Contains(text, fmt.Sprintf("medians and ranges of %d rounds", n+1)) {
		t.Errorf("exit %d, %s%s", code, text, stderr)
	}
	code, _, stderr = nrun("", "race", "--run", "one: threads=1", "--run", "two: threads=1", "--resume", path)
	if code != 2 || !strings.Contains(stderr, "another contestant: two: ") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	code, _, stderr = nrun("", "race", "--resume", path, "-p", "Once upon a time", "-n", "9")
	if code != 2 || !strings.Contains(stderr, "another tokens: 8, now 9") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// Every field of the JSON forms is in their documents, and every one there is a
// field.
func TestRaceSchema(t *testing.T) {
	testSchema(t, "race.md", reflect.TypeFor[race.Report](), raceShapes)
	testSchema(t, "acceptance.md", reflect.TypeFor[acceptanceReport](), map[string]reflect.Type{"CLASS": reflect.TypeFor[acceptanceClass]()})
}

func testSchema(t *testing.T, name string, form reflect.Type, shapes map[string]reflect.Type) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	for line := range strings.Lines(string(doc)) {
		cell, _, row := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !row || !strings.HasPrefix(line, "| `") {
			continue
		}
		first := "" // "`a.b`, `.c`" is a.b and a.c
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			if rest, ok := strings.CutPrefix(m[1], "."); ok {
				m[1] = first[:strings.LastIndex(first, ".")+1] + rest
			}
			first = m[1]
			written[m[1]] = true
		}
	}
	fields := map[string]bool{}
	walkFields(fields, "", form, shapes)
	for path, shape := range shapes {
		walkFields(fields, path, shape, shapes)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(written)), slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Errorf("docs/%s (-) and the form (+): %s", name, diff)
	}
}

// raceShapes are the objects that the file has at several places.
var raceShapes = map[string]reflect.Type{"WORK": reflect.TypeFor[race.Work](), "RANGE": reflect.TypeFor[race.Range](), "CLOCK": reflect.TypeFor[machine.Clock]()}

// walkFields collects the JSON paths of a type: "rounds[].order". Where it comes
// to a shape, it stops.
func walkFields(fields map[string]bool, path string, t reflect.Type, shapes map[string]reflect.Type) {
	switch t.Kind() {
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			walkFields(fields, path+"[]", t.Elem(), shapes)
			return
		}
	case reflect.Struct:
		if slices.Contains(slices.Collect(maps.Values(shapes)), t) && shapes[path] == nil {
			break
		}
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.Anonymous { // of which the document speaks at its shape
				walkFields(fields, strings.TrimPrefix(path+"."+name, "."), f.Type, shapes)
			}
		}
		return
	}
	fields[path] = true
}
