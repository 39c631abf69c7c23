package chat

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"npack/runtime/tokenizer"
)

// foreign renders a template that own code does not know.
//
// Jinja gives one text, in which the template's words and the contents are no
// longer told apart. So the template runs twice. First every content is a
// placeholder of private-use characters that holds a random number: what this
// rendering has around the placeholders is the template's own text, on which
// no content had any influence, and only this text is marked up. Then it runs
// with the contents themselves. If that output is the first one with contents
// in the placeholders' places (as they are, or trimmed, or escaped for JSON),
// the prompt is known piece by piece. If it is not, the template looks into
// contents and writes other text for some of them (or cuts them): the
// conversation is refused with [ErrOpaque] rather than guessed at.
type foreign struct {
	text     string
	bos, eos string
}

func (f *foreign) render(ctx context.Context, msgs []Message, o Options) ([]tokenizer.Piece, error) {
	if err := f.check(msgs, o); err != nil {
		return nil, err
	}
	mask := newMasker()
	opaque, err := f.context(msgs, o, mask.hide)
	if err != nil {
		return nil, err
	}
	plain, err := f.context(msgs, o, func(s, _ string) string { return s })
	if err != nil {
		return nil, err
	}
	req := sandboxRequest{Template: f.text, Contexts: []json.RawMessage{opaque, plain}}
	if o.Thinking != nil {
		for _, on := range []bool{false, true} {
			probe, err := f.context([]Message{{Role: User, Content: "Hi"}},
				Options{AddGenerationPrompt: true, Thinking: &on}, func(s, _ string) string { return s })
			if err != nil {
				return nil, err
			}
			req.Contexts = append(req.Contexts, probe)
		}
	}
	out, err := sandboxRun(ctx, req)
	if err != nil {
		return nil, err
	}
	if o.Thinking != nil && out[2] == out[3] {
		return nil, ErrNoThinking
	}
	return mask.align(out[0], out[1])
}

// check refuses what the template would ignore, as far as the names in its
// text tell.
func (f *foreign) check(msgs []Message, o Options) error {
	if len(o.Tools) > 0 && !f.names("tools") {
		return ErrNoTools
	}
	for _, m := range msgs {
		if len(m.ToolCalls) > 0 && !f.names("tool_calls") {
			return ErrNoTools
		}
	}
	if o.Thinking != nil && !slices.ContainsFunc(thinkingNames, f.names) {
		return ErrNoThinking
	}
	for k, v := range o.Args {
		switch {
		case k == "enable_thinking": // it is o.Thinking
			continue
		case !identifier.MatchString(k) || slices.Contains(ownNames, k) || !f.names(k):
			return fmt.Errorf("%w %q", ErrUnknownArgument, k)
		}
		switch v := v.(type) {
		case bool, int, float64:
		case string:
			if !harmless.MatchString(v) {
				return fmt.Errorf("template argument %q: %.60q, expected letters, digits and _ . - only", k, v)
			}
		default:
			return fmt.Errorf("template argument %q: %T, expected a boolean, number or string", k, v)
		}
	}
	return nil
}

var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// harmless texts cannot be control tokens; templates compare with them.
	harmless = regexp.MustCompile(`^[A-Za-z0-9_.-]*$`)
	// thinkingNames are what templates call their switch.
	thinkingNames = []string{"enable_thinking", "thinking"}
	ownNames      = []string{"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "thinking"}
)

// names reports whether the template's text has the identifier.
func (f *foreign) names(id string) bool {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(id) + `\b`).MatchString(f.text)
}

// context is what the template gets to see, as JSON. hide stands between it
// and every text that is not ours or the template's; where says whose it is.
func (f *foreign) context(msgs []Message, o Options, hide func(text, where string) string) (json.RawMessage, error) {
	list := []any{}
	for i, m := range msgs {
		where := fmt.Sprintf("message %d (%s)", i, m.Role)
		// Short names are compared with, so they stay if they can do no harm.
		hideRisky := func(s string) string {
			if harmless.MatchString(s) {
				return s
			}
			return hide(s, where)
		}
		msg := map[string]any{"role": m.Role, "content": hide(m.Content, where)}
		if m.Reasoning != nil {
			msg["reasoning_content"] = hide(*m.Reasoning, where)
		}
		if m.Name != "" {
			msg["name"] = hideRisky(m.Name)
		}
		if m.ToolCallID != "" {
			msg["tool_call_id"] = hideRisky(m.ToolCallID)
		}
		var calls []any
		for _, c := range m.ToolCalls {
			args, err := hideJSON(c.Function.Arguments, hideRisky)
			if err != nil {
				return nil, err
			}
			call := map[string]any{"type": "function", "function": map[string]any{"name": hideRisky(c.Function.Name), "arguments": args}}
			if c.ID != "" {
				call["id"] = hideRisky(c.ID)
			}
			calls = append(calls, call)
		}
		if calls != nil {
			msg["tool_calls"] = calls
		}
		list = append(list, msg)
	}
	vars := map[string]any{
		"messages": list, "tools": nil, "add_generation_prompt": o.AddGenerationPrompt,
		"bos_token": f.bos, "eos_token": f.eos,
	}
	var tools []json.RawMessage
	for i, t := range o.Tools {
		where := fmt.Sprintf("tool %d", i)
		tool, err := hideJSON(t, func(s string) string {
			if harmless.MatchString(s) {
				return s
			}
			return hide(s, where)
		})
		if err != nil {
			return nil, err
		}
		tools = append(tools, tool)
	}
	if tools != nil {
		vars["tools"] = tools
	}
	for k, v := range o.Args {
		vars[k] = v
	}
	if o.Thinking != nil {
		for _, n := range thinkingNames {
			vars[n] = *o.Thinking
		}
	}
	return json.Marshal(vars)
}

// hideJSON applies hide to all strings and keys of a JSON value.
func hideJSON(raw json.RawMessage, hide func(string) string) (json.RawMessage, error) {
	v, err := decodeJSON(raw)
	if err != nil {
		return nil, err
	}
	var bad error
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			// The engine's integers have 64 bits; Python's have no end.
			if _, err := strconv.ParseInt(v.String(), 10, 64); err != nil && !strings.ContainsAny(v.String(), ".eE") {
				bad = fmt.Errorf("integer %.40s: more than 64 bits in a tool, with a template that own code does not know", v)
			}
		case string:
			return hide(v)
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case *object:
			o := &object{vals: map[string]any{}}
			for _, k := range v.keys {
				o.set(hide(k), walk(v.vals[k]))
			}
			return o
		}
		return v
	}
	var b strings.Builder
	plainJSON.write(&b, walk(v), "")
	return json.RawMessage(b.String()), bad
}

// masker hands out placeholders and finds them again. A placeholder is
//
//	begin, 8 random characters, 3 characters that count, end
//
// all of them from a private-use plane: nothing trims, escapes or changes the
// case of such characters, and 64 random bits cannot be met by chance.
type masker struct {
	prefix string
	hidden []hiddenText
	full   bool // more texts than numbers
}

type hiddenText struct{ text, where string }

const (
	maskDigit = rune(0xF0000) // and the 255 after it
	maskBegin = rune(0xF0100)
	maskEnd   = rune(0xF0101)
	maskTop   = rune(0xF0101)
	maskCount = 3 // characters of a placeholder's number
)

func newMasker() *masker {
	var nonce [8]byte
	rand.Read(nonce[:])
	p := []rune{maskBegin}
	for _, b := range nonce {
		p = append(p, maskDigit+rune(b))
	}
	return &masker{prefix: string(p)}
}

// hide returns a placeholder. White space stays: it is no control token, and
// templates ask whether a content is empty.
func (m *masker) hide(text, where string) string {
	if strings.TrimSpace(text) == "" {
		return text
	}
	n := len(m.hidden)
	if n >= 1<<(8*maskCount) {
		m.full = true
		return ""
	}
	m.hidden = append(m.hidden, hiddenText{text, where})
	return m.prefix + string([]rune{maskDigit + rune(n>>16&255), maskDigit + rune(n>>8&255), maskDigit + rune(n&255), maskEnd})
}

// span is a placeholder in the opaque output and the template text after it.
type span struct {
	hidden int
	after  string
}

// split cuts the opaque output at its placeholders. It fails if one was cut.
func (m *masker) split(opaque string) (head string, spans []span, err error) {
	if m.full {
		return "", nil, fmt.Errorf("%w: too many texts", ErrOpaque)
	}
	parts := strings.Split(opaque, m.prefix)
	for i, p := range parts {
		if i > 0 {
			r := []rune(p[:min(len(p), 4*(maskCount+1))])
			if len(r) < maskCount+1 || r[maskCount] != maskEnd {
				return "", nil, fmt.Errorf("%w: the template cuts a content", ErrOpaque)
			}
			n := 0
			for _, d := range r[:maskCount] {
				n = n<<8 | int(d-maskDigit)&255
			}
			if n >= len(m.hidden) {
				return "", nil, fmt.Errorf("%w: the template cuts a content", ErrOpaque)
			}
			p = p[4*(maskCount+1):]
			spans = append(spans, span{n, p})
		} else {
			head = p
		}
		if strings.ContainsFunc(p, func(r rune) bool { return maskDigit <= r && r <= maskTop }) {
			return "", nil, fmt.Errorf("%w: the template cuts a content", ErrOpaque)
		}
	}
	return head, spans, nil
}

// align lays the opaque output over the plain one.
func (m *masker) align(opaque, plain string) ([]tokenizer.Piece, error) {
	head, spans, err := m.split(opaque)
	if err != nil {
		return nil, err
	}
	rest, ok := strings.CutPrefix(plain, head)
	if !ok {
		return nil, fmt.Errorf("%w: the template begins differently", ErrOpaque)
	}
	// chosen[k] is the form of the k-th placeholder's text. Forms are tried in
	// order, going back where the rest then fails; which of several ways is
	// found does not matter for safety, as the marked-up text is the same.
	chosen := make([]string, len(spans))
	dead := map[[2]int]bool{} // span and length left, known to fail
	furthest := 0
	var try func(k int, rest string) bool
	try = func(k int, rest string) bool {
		if k == len(spans) {
			return rest == ""
		}
		key := [2]int{k, len(rest)}
		if dead[key] {
			return false
		}
		furthest = max(furthest, k)
		for _, form := range forms(m.hidden[spans[k].hidden].text) {
			if after, ok := strings.CutPrefix(rest, form); ok {
				if after, ok = strings.CutPrefix(after, spans[k].after); ok {
					chosen[k] = form
					if try(k+1, after) {
						return true
					}
				}
			}
		}
		dead[key] = true
		return false
	}
	if !try(0, rest) {
		where := "the template's end"
		if len(spans) > 0 {
			where = m.hidden[spans[furthest].hidden].where
		}
		return nil, fmt.Errorf("%w: %s: the template treats this text differently from others", ErrOpaque, where)
	}
	var p pieces
	p.markup(head)
	for k, s := range spans {
		p.literal(chosen[k])
		p.markup(s.after)
	}
	return p, nil
}

// forms are the ways in which templates print a content, likeliest first.
func forms(text string) []string {
	trimmed := strings.TrimSpace(text)
	list := []string{
		text, trimmed,
		strings.TrimLeft(text, "\n"), strings.TrimRight(text, "\n"), strings.Trim(text, "\n"),
		strings.TrimRight(text, " \t\r\n"), strings.TrimLeft(text, " \t\r\n"),
	}
	for _, s := range []string{text, trimmed} {
		var b strings.Builder
		writeJSONString(&b, s)
		list = append(list, b.String()[1:b.Len()-1])
	}
	return list
}
