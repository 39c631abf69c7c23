// Package chat turns messages into the text of a prompt with the chat template
// of a model's pack, and an answer's text back into thinking and answer.
//
// The text comes as pieces: what the template wrote, in which the tokenizer
// recognises control tokens, and what somebody said, in which it never does.
// No content, role, tool description or argument can therefore end a turn or
// forge one.
//
// The templates of the Qwen3 family and plain ChatML are rendered by code of
// our own (qwen3.go, chatml.go); a template counts as one of them if its
// sha256 is in [knownTemplates]. Every other template is run by a Jinja
// library in a process of its own (sandbox.go) and the contents are found in
// its output with placeholders (foreign.go).
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"npack/runtime/tokenizer"
)

// Role says who speaks.
type Role string

// The roles that templates know.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Message is one turn. Its JSON form is that of the OpenAI chat API.
type Message struct {
	Role    Role   `json:"role"`
	Content string `json:"content"`
	// Reasoning is what an assistant thought before it answered. nil means
	// that it was not kept apart: Qwen3 templates then look for it in Content.
	// A pointer to "" says that there was none, and Content is left alone.
	Reasoning  *string    `json:"reasoning_content,omitempty"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`   // of an assistant
	ToolCallID string     `json:"tool_call_id,omitempty"` // of a tool's answer
	Name       string     `json:"name,omitempty"`         // of the tool or speaker
}

// ToolCall is an assistant's request to run a tool.
type ToolCall struct {
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"` // "function"
	Function FunctionCall `json:"function"`
}

// FunctionCall names a tool and its arguments: a JSON object, or a JSON string
// whose text is printed as it is.
type FunctionCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Options are the arguments of a template.
type Options struct {
	// Thinking switches reasoning on or off; nil leaves it to the template.
	Thinking *bool
	// AddGenerationPrompt opens the assistant's turn at the end.
	AddGenerationPrompt bool
	// Tools are JSON descriptions of functions that the model may call.
	Tools []json.RawMessage
	// Args are further arguments by name: bool, string, float64 or int.
	// "enable_thinking" is the same as Thinking.
	Args map[string]any
}

var (
	// ErrNoTemplate: the pack has none, so messages cannot become a prompt.
	ErrNoTemplate = errors.New("no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json")
	// ErrNoThinking: [Options.Thinking] was set and would have no effect.
	ErrNoThinking = errors.New("this pack's template has no thinking switch")
	// ErrNoTools: tools or tool calls were given and would have no effect.
	ErrNoTools = errors.New("this pack's template knows no tools")
	// ErrUnknownArgument is wrapped for an [Options.Args] name that the
	// template does not use.
	ErrUnknownArgument = errors.New("unknown template argument")
	// ErrTemplate is wrapped when a pack's template cannot be run: it is
	// broken, raises an exception of its own, or uses too much time or memory.
	ErrTemplate = errors.New("chat template")
	// ErrMessage is wrapped for messages that no template is asked about: an
	// unknown role, a tool call without arguments, no message at all.
	ErrMessage = errors.New("message")
	// ErrOpaque is wrapped when a foreign template changes a content in a way
	// that leaves open which part of its output is the content.
	ErrOpaque = errors.New("content cannot be told apart from the template's own text")
)

// renderer is a family of templates.
type renderer interface {
	render(ctx context.Context, msgs []Message, o Options) ([]tokenizer.Piece, error)
}

// Template is a pack's chat template. It may be used by several goroutines.
type Template struct {
	family string
	r      renderer
	thinks bool
	system string
	stops  []string
}

// Family is "qwen3" or "chatml" for templates rendered by own code, "jinja"
// for any other.
func (t *Template) Family() string { return t.family }

// Thinks reports whether the template's text has the tag that ends a thought:
// answers may begin with one, and are to be taken apart with a [Splitter]. The
// template may have a switch for it ([Template.HasThinking]) or not.
func (t *Template) Thinks() bool { return t.thinks }

// Stops are the texts of the control tokens that end an assistant's turn, as
// far as the template and tokenizer_config.json say. generation_config.json
// may name more by id, see [ParseGenerationConfig].
func (t *Template) Stops() []string { return t.stops }

// DefaultSystem is the system prompt that the pack ships beside its template,
// or "". [Template.Render] puts it in front of messages that have none. (A
// template may have a default of its own as well; that one is part of its
// text.)
func (t *Template) DefaultSystem() string { return t.system }

// Render returns the prompt for msgs. The pieces' texts, concatenated, are
// what the pack's Jinja template gives for the same messages.
//
// It refuses what would be ignored: a thinking switch, tools or arguments that
// the template does not know.
func (t *Template) Render(ctx context.Context, msgs []Message, o Options) ([]tokenizer.Piece, error) {
	if v, ok := o.Args["enable_thinking"]; ok {
		b, isBool := v.(bool)
		if !isBool {
			return nil, fmt.Errorf("template argument %q: %v is not true or false", "enable_thinking", v)
		}
		if o.Thinking != nil && *o.Thinking != b {
			return nil, fmt.Errorf("template argument %q: %v contradicts the thinking switch, %v", "enable_thinking", b, *o.Thinking)
		}
		o.Thinking = &b
	}
	msgs, err := t.prepare(msgs)
	if err != nil {
		return nil, err
	}
	for i, tool := range o.Tools {
		if _, err := decodeJSON(tool); err != nil {
			return nil, fmt.Errorf("tool %d: %w", i, err)
		}
	}
	return t.r.render(ctx, msgs, o)
}

// prepare copies msgs, checks them and adds the pack's system prompt.
func (t *Template) prepare(msgs []Message) ([]Message, error) {
	if len(msgs) == 0 {
		return nil, fmt.Errorf("%w: none given", ErrMessage)
	}
	out := make([]Message, 0, len(msgs)+1)
	if t.system != "" && msgs[0].Role != System {
		out = append(out, Message{Role: System, Content: t.system})
	}
	for i, m := range msgs {
		switch m.Role {
		case System, User, Assistant, Tool:
		default:
			return nil, fmt.Errorf("%w %d: role %q, expected system, user, assistant or tool", ErrMessage, i, m.Role)
		}
		if len(m.ToolCalls) > 0 && m.Role != Assistant {
			return nil, fmt.Errorf("%w %d: role %q cannot call tools", ErrMessage, i, m.Role)
		}
		for k, c := range m.ToolCalls {
			if _, err := decodeJSON(c.Function.Arguments); err != nil {
				return nil, fmt.Errorf("%w %d: arguments of tool call %d: %w", ErrMessage, i, k, err)
			}
		}
		// Tokenizers work on characters; what is none becomes U+FFFD here, so
		// that all ways through this package see the same text.
		m.Content = strings.ToValidUTF8(m.Content, "\uFFFD")
		if m.Reasoning != nil {
			r := strings.ToValidUTF8(*m.Reasoning, "\uFFFD")
			m.Reasoning = &r
		}
		out = append(out, m)
	}
	return out, nil
}

// HasThinking reports whether the template has a thinking switch. For a
// foreign template it renders a short conversation both ways.
func (t *Template) HasThinking(ctx context.Context) (bool, error) {
	off := false
	_, err := t.r.render(ctx, []Message{{Role: User, Content: "Hi"}}, Options{Thinking: &off, AddGenerationPrompt: true})
	if errors.Is(err, ErrNoThinking) {
		return false, nil
	}
	return err == nil, err
}

// knowsOnly returns an error for arguments other than names.
func knowsOnly(args map[string]any, names ...string) error {
next:
	for k := range args {
		for _, n := range names {
			if k == n {
				continue next
			}
		}
		return fmt.Errorf("%w %q", ErrUnknownArgument, k)
	}
	return nil
}

// pieces collects a prompt. Neighbours of one kind become one piece, so that
// the tokenizer sees text as the template's author did.
type pieces []tokenizer.Piece

func (p *pieces) add(text string, markup bool) {
	if text == "" {
		return
	}
	if n := len(*p); n > 0 && (*p)[n-1].Markup == markup {
		(*p)[n-1].Text += text
		return
	}
	*p = append(*p, tokenizer.Piece{Text: text, Markup: markup})
}

// markup adds the template's own text, literal somebody's words.
func (p *pieces) markup(text string)  { p.add(text, true) }
func (p *pieces) literal(text string) { p.add(text, false) }

// Text returns the prompt as one string, for people to read. It must not be
// tokenised: it no longer says which markers are the template's.
func Text(ps []tokenizer.Piece) string {
	var b strings.Builder
	for _, p := range ps {
		b.WriteString(p.Text)
	}
	return b.String()
}
