package race

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
)

// bench is llama.cpp's llama-bench, which makes no text: it only tells how fast
// as many tokens go as the prompts have on average.
type bench struct{ argv []string }

func newBench(d *Definition) (*bench, error) {
	argv, err := Fields(d.Bench)
	if err != nil || len(argv) == 0 {
		return nil, fmt.Errorf("bench %q: no command: %w", d.Bench, err)
	}
	if argv[0], err = exec.LookPath(argv[0]); err != nil {
		return nil, err
	}
	return &bench{argv}, nil
}

func (b *bench) Close() error { return nil }

// Turn is [Runner]. It runs the program twice: for prompts, and for answers
// behind as many tokens. The program warms up by itself.
func (b *bench) Turn(ctx context.Context, prompts []Prompt, tokens int) (*Turn, error) {
	sum := 0
	for _, p := range prompts {
		sum += len(p.IDs)
	}
	prompt, answer := (sum+len(prompts)/2)/len(prompts), tokens-1
	prefill, err := b.run(ctx, prompt, 0, 0)
	if err != nil {
		return nil, err
	}
	decode, err := b.run(ctx, 0, answer, prompt)
	if err != nil {
		return nil, err
	}
	return &Turn{Total: Work{Prompts: 1, PromptTokens: prompt, PrefillSeconds: float64(prompt) / prefill, Tokens: answer, DecodeSeconds: float64(answer) / decode}}, nil
}

// run returns the tokens a second of one test: of prompt tokens, or of answer
// tokens behind depth.
func (b *bench) run(ctx context.Context, prompt, answer, depth int) (float64, error) {
	args := append(b.argv[1:len(b.argv):len(b.argv)], "-p", strconv.Itoa(prompt), "-n", strconv.Itoa(answer), "-d", strconv.Itoa(depth), "-r", "1", "-o", "json")
	cmd := exec.CommandContext(ctx, b.argv[0], args...)
	politely(cmd)
	var out bytes.Buffer
	var said tail
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%q: %w%s", b.argv[0], err, said.quote())
	}
	var results []struct {
		Prompt int     `json:"n_prompt"`
		Answer int     `json:"n_gen"`
		Rate   float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		return 0, fmt.Errorf("%q prints %.100q: %w", b.argv[0], out.Bytes(), err)
	}
	if len(results) != 1 || results[0].Prompt != prompt || results[0].Answer != answer || !(results[0].Rate > 0) {
		return 0, fmt.Errorf("%q prints the results %+v, want one of %d prompt and %d answer tokens; the command must not choose tests itself", b.argv[0], results, prompt, answer)
	}
	return results[0].Rate, nil
}
