package race

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"npack/pack"
)

const (
	// startPatience is how long a server may take to load its model.
	startPatience = 15 * time.Minute
	// maxResponse bounds an answer in bytes. llama.cpp repeats the prompt in it.
	maxResponse = 64 << 20
)

// server is a contestant that answers HTTP requests as llama.cpp's server does:
// GET /health is 200 once it is ready, POST /completion answers a prompt of raw
// token ids, with ids and timings.
type server struct {
	url     string
	fields  map[string]any // of each request, beside prompt and n_predict
	process *process       // nil if somebody else started it
	client  *http.Client
}

// startServer starts the server of a definition, if it has a command, and waits
// until it is ready.
func startServer(ctx context.Context, d *Definition) (*server, error) {
	// The reasons: greedy, by every means that llama.cpp has for it; the whole
	// prompt is read each time; raw ids come back; and not as a stream, in which
	// llama.cpp leaves out the ids of tokens that end within a character.
	s := &server{url: d.URL, client: &http.Client{Transport: &http.Transport{Proxy: nil}}, fields: map[string]any{
		"temperature": 0, "top_k": 1, "seed": 1, "repeat_penalty": 1, "cache_prompt": false, "return_tokens": true, "stream": false,
	}}
	if len(d.Request) > 0 {
		if err := json.Unmarshal(d.Request, &s.fields); err != nil {
			return nil, fmt.Errorf("request: %w", err)
		}
	}
	command := d.Server
	if strings.Contains(command, "{port}") {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		command = strings.ReplaceAll(command, "{port}", strconv.Itoa(port))
		s.url = strings.ReplaceAll(s.url, "{port}", strconv.Itoa(port))
	}
	s.url = strings.TrimSuffix(s.url, "/")
	if command != "" {
		argv, err := Fields(command)
		if err != nil || len(argv) == 0 {
			return nil, fmt.Errorf("server %q: no command: %w", command, err)
		}
		if s.process, err = startProcess(argv); err != nil {
			return nil, err
		}
	}
	if err := s.ready(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// ready waits for a server that loads.
func (s *server) ready(ctx context.Context) error {
	limit := time.Now().Add(startPatience)
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/health", nil)
		if err != nil {
			return err
		}
		resp, err := s.client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			if resp.StatusCode != http.StatusServiceUnavailable {
				return fmt.Errorf("%s/health answers %s: %w", s.url, resp.Status, pack.ErrNetwork)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.process == nil && err != nil {
			return fmt.Errorf("%w: %w", err, pack.ErrNetwork) // nobody will start it
		}
		if s.process != nil {
			if err := s.process.ended(100 * time.Millisecond); err != nil {
				return fmt.Errorf("before it was ready: %w", err)
			}
		} else {
			time.Sleep(100 * time.Millisecond)
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%s/health is not ready after %s", s.url, startPatience)
		}
	}
}

// completion is what /completion answers.
type completion struct {
	Tokens    []int32 `json:"tokens"`
	StopType  string  `json:"stop_type"` // eos, limit, word; "" from one that does not tell
	Truncated bool    `json:"truncated"` // the context had no room for all of it
	Timings   *struct {
		PromptN        int     `json:"prompt_n"`
		PromptMS       float64 `json:"prompt_ms"`
		PredictedN     int     `json:"predicted_n"`
		PredictedMS    float64 `json:"predicted_ms"`
		DraftN         int     `json:"draft_n"`
		DraftNAccepted int     `json:"draft_n_accepted"`
	} `json:"timings"`
}

// Answer is [Answerer].
func (s *server) Answer(ctx context.Context, prompt []int32, tokens int) ([]int32, Work, error) {
	s.fields["prompt"], s.fields["n_predict"] = prompt, tokens
	body, err := json.Marshal(s.fields)
	if err != nil {
		return nil, Work{}, err
	}
	c, err := s.post(ctx, body)
	if err != nil {
		if ctx.Err() == nil && s.process != nil {
			if ended := s.process.ended(time.Second); ended != nil {
				err = fmt.Errorf("%w; %w", err, ended)
			}
		}
		return nil, Work{}, err
	}
	t := c.Timings
	if t == nil {
		return nil, Work{}, fmt.Errorf("%s/completion answers without timings", s.url)
	}
	// One token more may come, to end a character.
	if len(c.Tokens) == 0 || t.PredictedN < 1 {
		return nil, Work{}, fmt.Errorf("%s/completion answers %d token ids, and says that it made %d", s.url, len(c.Tokens), t.PredictedN)
	}
	if t.PromptN < 1 || t.PromptN > len(prompt) || t.PromptMS < 0 || t.PredictedMS < 0 {
		return nil, Work{}, fmt.Errorf("%s/completion says that it read %d tokens of a prompt of %d, in %g ms, and made %d in %g ms",
			s.url, t.PromptN, len(prompt), t.PromptMS, t.PredictedN, t.PredictedMS)
	}
	if c.Truncated {
		return nil, Work{}, fmt.Errorf("%s/completion ran out of context at %d of %d tokens behind a prompt of %d: give the server room for both (llama-server -c)",
			s.url, len(c.Tokens), tokens, len(prompt))
	}
	if len(c.Tokens) < tokens && c.StopType != "" && c.StopType != "eos" {
		return nil, Work{}, fmt.Errorf("%s/completion ends an answer after %d of %d tokens for stop_type %q, want eos", s.url, len(c.Tokens), tokens, c.StopType)
	}
	w := Work{Prompts: 1, PromptTokens: t.PromptN, PrefillSeconds: t.PromptMS / 1000, Tokens: t.PredictedN - 1, DecodeSeconds: t.PredictedMS / 1000,
		Drafted: t.DraftN, Kept: t.DraftNAccepted}
	if t.DraftN > 0 {
		w.Passes = w.Tokens - t.DraftNAccepted // each pass gives one token beside those kept
	}
	return c.Tokens[:min(tokens, len(c.Tokens))], w, nil
}

func (s *server) post(ctx context.Context, body []byte) (*completion, error) {
	url := s.url + "/completion"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err == nil && len(data) > maxResponse {
		err = fmt.Errorf("more than %d bytes", maxResponse)
	}
	if err != nil {
		return nil, fmt.Errorf("%s broke off after %d bytes: %w", url, len(data), err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s: %.300s", url, resp.Status, data)
	}
	c := &completion{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("%s answers %.100q: %w", url, data, err)
	}
	return c, nil
}

func (s *server) Close() error {
	if s.process != nil {
		s.process.close()
	}
	s.client.CloseIdleConnections()
	return nil
}

// StartExternal starts a contestant that is not ours.
func StartExternal(ctx context.Context, d *Definition) (Runner, error) {
	switch {
	case d.Bench != "":
		return newBench(d)
	case d.URL != "":
		s, err := startServer(ctx, d)
		if err != nil {
			return nil, err
		}
		return PerPrompt(s), nil
	}
	return nil, errors.New("it is not external")
}
