package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"npack/runtime/tokenizer"
)

// qwen3 renders the stock template of the Qwen3 family: ChatML with tools,
// thinking, and thoughts of earlier turns left out.
//
// Two texts of it are in use, the first and a later one that also copes with
// contents that are not text; for text they give the same (testdata/README.md).
type qwen3 struct{}

const (
	qwen3ToolsHead = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>"
	qwen3ToolsTail = "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n"
)

func (qwen3) render(_ context.Context, msgs []Message, o Options) ([]tokenizer.Piece, error) {
	if err := knowsOnly(o.Args, "enable_thinking"); err != nil {
		return nil, err
	}
	var p pieces
	if err := qwen3System(&p, msgs[0], o.Tools); err != nil {
		return nil, err
	}
	last := lastQuery(msgs)
	for i, m := range msgs {
		switch m.Role {
		case System:
			if i == 0 {
				continue // it stands above
			}
			fallthrough
		case User:
			p.markup("<|im_start|>" + string(m.Role) + "\n")
			p.literal(m.Content)
			p.markup("<|im_end|>\n")
		case Assistant:
			if err := qwen3Assistant(&p, m, i > last, i == len(msgs)-1); err != nil {
				return nil, fmt.Errorf("%w %d: %w", ErrMessage, i, err)
			}
		case Tool:
			// Answers of several tools in a row share one user turn.
			if i == 0 || msgs[i-1].Role != Tool {
				p.markup("<|im_start|>user")
			}
			p.markup("\n<tool_response>\n")
			p.literal(m.Content)
			p.markup("\n</tool_response>")
			if i == len(msgs)-1 || msgs[i+1].Role != Tool {
				p.markup("<|im_end|>\n")
			}
		}
	}
	if o.AddGenerationPrompt {
		p.markup("<|im_start|>assistant\n")
		if o.Thinking != nil && !*o.Thinking {
			p.markup("<think>\n\n</think>\n\n")
		}
	}
	return p, nil
}

// qwen3System writes the system turn: the first message if it is one, and the
// tools.
func qwen3System(p *pieces, first Message, tools []json.RawMessage) error {
	isSystem := first.Role == System
	if len(tools) == 0 {
		if isSystem {
			p.markup("<|im_start|>system\n")
			p.literal(first.Content)
			p.markup("<|im_end|>\n")
		}
		return nil
	}
	p.markup("<|im_start|>system\n")
	if isSystem {
		p.literal(first.Content)
		p.markup("\n\n")
	}
	p.markup(qwen3ToolsHead)
	for i, tool := range tools {
		text, err := pythonJSON(tool)
		if err != nil {
			return fmt.Errorf("tool %d: %w", i, err)
		}
		p.markup("\n")
		p.literal(text)
	}
	p.markup(qwen3ToolsTail)
	return nil
}

// lastQuery is the index of the last thing a person asked: thoughts that came
// before it are left out. A user turn that holds a tool's answer is no query.
func lastQuery(msgs []Message) int {
	for i := len(msgs) - 1; i >= 0; i-- {
		c := msgs[i].Content
		if msgs[i].Role == User && !(strings.HasPrefix(c, "<tool_response>") && strings.HasSuffix(c, "</tool_response>")) {
			return i
		}
	}
	return len(msgs) - 1
}

func qwen3Assistant(p *pieces, m Message, afterQuery, isLast bool) error {
	content, reasoning := m.Content, ""
	if m.Reasoning != nil {
		reasoning = *m.Reasoning
	} else if i := strings.LastIndex(content, "</think>"); i >= 0 {
		before, _, _ := strings.Cut(content, "</think>")
		before = strings.TrimRight(before, "\n")
		if k := strings.LastIndex(before, "<think>"); k >= 0 {
			before = before[k+len("<think>"):]
		}
		reasoning = strings.TrimLeft(before, "\n")
		content = strings.TrimLeft(content[i+len("</think>"):], "\n")
	}
	p.markup("<|im_start|>assistant\n")
	if afterQuery && (isLast || reasoning != "") {
		p.markup("<think>\n")
		p.literal(strings.Trim(reasoning, "\n"))
		p.markup("\n</think>\n\n")
		p.literal(strings.TrimLeft(content, "\n"))
	} else {
		p.literal(content)
	}
	for k, c := range m.ToolCalls {
		if k > 0 || content != "" {
			p.markup("\n")
		}
		args, err := argumentsText(c.Function.Arguments)
		if err != nil {
			return fmt.Errorf("arguments of tool call %d: %w", k, err)
		}
		p.markup("<tool_call>\n{\"name\": \"")
		p.literal(c.Function.Name)
		p.markup("\", \"arguments\": ")
		p.literal(args)
		p.markup("}\n</tool_call>")
	}
	p.markup("<|im_end|>\n")
	return nil
}

// argumentsText prints a call's arguments: a JSON string as its text, anything
// else as JSON.
func argumentsText(raw json.RawMessage) (string, error) {
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '"' {
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	}
	return pythonJSON(raw)
}
