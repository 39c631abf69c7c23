package race

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"npack/pack"
)

// TestMain makes this test binary an external program: "fake WHAT ARGS…".
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "fake" {
		os.Exit(fake(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

func fake(what string, args []string) int {
	arg := func(name string) string {
		if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	switch what {
	case "server": // loads for a moment, dies at the third prompt
		loaded := time.Now().Add(300 * time.Millisecond)
		n := 0
		http.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
			if time.Now().Before(loaded) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		http.HandleFunc("/completion", func(w http.ResponseWriter, _ *http.Request) {
			if n++; n == 3 {
				fmt.Fprintln(os.Stderr, "illegal instruction")
				os.Exit(7)
			}
			fmt.Fprint(w, `{"tokens": [1, 2], "timings": {"prompt_n": 1, "prompt_ms": 1, "predicted_n": 2, "predicted_ms": 1}}`)
		})
		fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:"+arg("--port"), nil))
		return 1
	case "early":
		fmt.Fprintln(os.Stderr, "no such model")
		return 3
	case "bench":
		rate := map[string]string{"0": "50", "4": "400"}[arg("-p")]
		if arg("-r") != "1" || arg("-o") != "json" || arg("-n") == "0" && arg("-d") != "0" {
			return 4
		}
		fmt.Printf(`[{"n_prompt": %s, "n_gen": %s, "n_depth": %s, "avg_ts": %s}]`, arg("-p"), arg("-n"), arg("-d"), rate)
	case "broken-bench":
		fmt.Print("no table")
	}
	return 0
}

// program is the command line of a fake.
func program(t *testing.T, words string) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return `"` + path + `" fake ` + words
}

// serve returns the definition of a server that answers so, and the last request.
func serve(t *testing.T, status int, answer string) (*Definition, *map[string]any) {
	last := &map[string]any{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /completion", func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(last); err != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("request: %v, %v", err, r.Header)
		}
		if answer == "cut" {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"tokens": [`)
			return
		}
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return &Definition{Name: "s", URL: s.URL + "/", Request: json.RawMessage(`{"n_keep": 3}`)}, last
}

func TestServer(t *testing.T) {
	d, last := serve(t, 200, `{"content": "x", "tokens": [7, 8, 9, 10], "timings": {"prompt_n": 2, "prompt_ms": 4, "predicted_n": 4, "predicted_ms": 60, "draft_n": 3, "draft_n_accepted": 1}}`)
	r, err := StartExternal(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	turn, err := r.Turn(t.Context(), []Prompt{{"", []int32{4, 5}}, {"", []int32{5, 6}}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"prompt": []any{5.0, 6.0}, "n_predict": 3.0, "temperature": 0.0, "top_k": 1.0, "seed": 1.0, "repeat_penalty": 1.0,
		"cache_prompt": false, "return_tokens": true, "stream": false, "n_keep": 3.0}
	if diff := cmp.Diff(want, *last); diff != "" {
		t.Error(diff)
	}
	// The fourth token, which was not asked for, is measured but not compared.
	if diff := cmp.Diff([][]int32{{7, 8, 9}, {7, 8, 9}}, turn.Answers); diff != "" {
		t.Error(diff)
	}
	total := turn.Total
	if total.Prompts != 2 || total.PromptTokens != 4 || total.Tokens != 6 || total.Drafted != 6 || total.Kept != 2 || total.Passes != 4 || total.DecodeRate() < 49.9 || total.DecodeRate() > 50.1 || turn.Classes != nil {
		t.Errorf("%+v", turn)
	}
}

func TestServerErrors(t *testing.T) {
	const timings = `"timings": {"prompt_n": 1, "prompt_ms": 1, "predicted_n": 2, "predicted_ms": 1}`
	for _, c := range []struct {
		status       int
		answer, want string
	}{
		{500, `{"error": "out of memory"}`, `answers 500 Internal Server Error: {"error": "out of memory"}`},
		{200, `cut`, "broke off after 12 bytes: unexpected EOF"},
		{200, `<html>`, `answers "<html>": invalid`},
		{200, `{"tokens": [1, 2]}`, "without timings"},
		{200, `{"content": "x", ` + timings + `}`, "answers 0 token ids, and says that it made 2"},
		{200, `{"tokens": [1], "timings": {"prompt_n": 9, "prompt_ms": 1, "predicted_n": 1, "predicted_ms": 1}}`, "read 9 tokens of a prompt of 1"},
		{200, `{"tokens": [1], "timings": {"prompt_n": 1, "prompt_ms": -1, "predicted_n": 1, "predicted_ms": 1}}`, "in -1 ms"},
		{200, `{"tokens": ["a"], ` + timings + `}`, "cannot unmarshal string"},
		{200, `{"tokens": [1], "stop_type": "limit", "truncated": true, ` + timings + `}`, "ran out of context at 1 of 2 tokens behind a prompt of 1: "},
		{200, `{"tokens": [1, 2], "stop_type": "limit", "truncated": true, ` + timings + `}`, "ran out of context at 2 of 2 tokens"}, // it may have shifted
		{200, `{"tokens": [1], "stop_type": "limit", "truncated": false, ` + timings + `}`, `ends an answer after 1 of 2 tokens for stop_type "limit", want eos`},
	} {
		d, _ := serve(t, c.status, c.answer)
		r, err := StartExternal(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = r.Turn(t.Context(), []Prompt{{"", []int32{4}}}, 2); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "prompt 0: ") {
			t.Errorf("%s: %v, want %q", c.answer, err, c.want)
		}
		r.Close()
	}
	if _, err := StartExternal(t.Context(), &Definition{URL: "http://127.0.0.1:1"}); !errors.Is(err, pack.ErrNetwork) {
		t.Errorf("nobody listens: %v", err)
	}
	d, _ := serve(t, 200, "")
	d.URL += "v9"
	if _, err := StartExternal(t.Context(), d); !errors.Is(err, pack.ErrNetwork) || !strings.Contains(err.Error(), "/v9/health answers 404") {
		t.Errorf("no health: %v", err)
	}
}

// A server is started, waited for, and its death is reported with its last words.
func TestServerProcess(t *testing.T) {
	d := &Definition{Name: "s", Server: program(t, "server --port {port}"), URL: "http://127.0.0.1:{port}"}
	r, err := StartExternal(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Turn(t.Context(), []Prompt{{"", []int32{1}}, {"", []int32{1}}, {"", []int32{1}}}, 2)
	if err == nil || !strings.HasPrefix(err.Error(), "prompt 2: ") || !strings.HasSuffix(err.Error(), "ended: exit status 7; it said last: illegal instruction") {
		t.Errorf("%v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	d.Server = program(t, "early {port}")
	if _, err := StartExternal(t.Context(), d); err == nil || !strings.Contains(err.Error(), "before it was ready: ") || !strings.HasSuffix(err.Error(), "exit status 3; it said last: no such model") {
		t.Errorf("%v", err)
	}
	d.Server = "no-such-program-at-all {port}"
	if _, err := StartExternal(t.Context(), d); err == nil || !strings.Contains(err.Error(), "no-such-program-at-all") {
		t.Errorf("%v", err)
	}
}

// A server that was started ends with its contestant, and Ctrl-C ends waiting.
func TestServerEnds(t *testing.T) {
	d := &Definition{Name: "s", Server: program(t, "server --port {port}"), URL: "http://127.0.0.1:{port}"}
	s, err := startServer(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.process.done:
	default:
		t.Error("the server goes on")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := startServer(ctx, d); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestBench(t *testing.T) {
	r, err := StartExternal(t.Context(), &Definition{Bench: program(t, "bench -t 2")})
	if err != nil {
		t.Fatal(err)
	}
	prompts := []Prompt{{"chat", make([]int32, 3)}, {"code", make([]int32, 4)}}
	turn, err := r.Turn(t.Context(), prompts, 11)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Turn{Total: Work{Prompts: 1, PromptTokens: 4, PrefillSeconds: 0.01, Tokens: 10, DecodeSeconds: 0.2}}, turn, cmp.AllowUnexported(Turn{})); diff != "" {
		t.Error(diff)
	}
	for what, want := range map[string]string{"broken-bench": `prints "no table"`, "early": "exit status 3; it said last: no such model", "nothing": "prints \"\"", "bench -r 5": "exit status 4"} {
		r, err := StartExternal(t.Context(), &Definition{Bench: program(t, what)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Turn(t.Context(), prompts, 11); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	if _, err := StartExternal(t.Context(), &Definition{Bench: "no-such-program-at-all"}); err == nil {
		t.Error("a program that is not there starts")
	}
}
