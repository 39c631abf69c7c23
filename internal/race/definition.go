package race

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Definition says who takes part. Empty fields are the program's choice, which
// it fills in before a race begins.
type Definition struct {
	Name string `json:"name"`

	// One of ours:
	Model       string `json:"model,omitempty"`  // file or pack directory; "" is the embedded story model
	Format      string `json:"format,omitempty"` // of the file; filled in
	Bytes       int64  `json:"bytes,omitempty"`  // of the file; filled in
	Backend     string `json:"backend,omitempty"`
	Kernel      string `json:"kernel,omitempty"`
	ZeroCopy    bool   `json:"zero_copy,omitempty"` // weights where the file is mapped
	Activations string `json:"activations,omitempty"`
	KV          string `json:"kv,omitempty"`
	Threads     int    `json:"threads,omitempty"`
	Draft       string `json:"draft,omitempty"`        // a smaller model, or lookup
	DraftLength string `json:"draft_length,omitempty"` // tokens at a time, or auto

	// A server that speaks llama.cpp's /completion: a command that starts it, an
	// address, or both. {port} in them is a free port.
	Server  string          `json:"server,omitempty"`
	URL     string          `json:"url,omitempty"`
	Request json.RawMessage `json:"request,omitempty"` // object whose fields are added to each request
	// The beginning of a command line of llama.cpp's llama-bench.
	Bench string `json:"bench,omitempty"`

	// SpeedOnly lets rates count although tokens differ or are not told.
	SpeedOnly bool `json:"speed_only,omitempty"`
}

// Ours reports whether the contestant runs in this program.
func (d *Definition) Ours() bool { return d.Server == "" && d.URL == "" && d.Bench == "" }

type key struct {
	name string
	ours bool // says how one of ours is run
	get  func(*Definition) string
	set  func(*Definition, string) error
}

// keys are the words of a definition on a command line, in the order of
// [Definition.Text].
var keys = []key{
	text("model", true, func(d *Definition) *string { return &d.Model }),
	text("backend", true, func(d *Definition) *string { return &d.Backend }),
	text("kernel", true, func(d *Definition) *string { return &d.Kernel }),
	yesNo("zero-copy", true, func(d *Definition) *bool { return &d.ZeroCopy }),
	text("activations", true, func(d *Definition) *string { return &d.Activations }),
	text("kv", true, func(d *Definition) *string { return &d.KV }),
	{"threads", true, func(d *Definition) string {
		if d.Threads == 0 {
			return ""
		}
		return strconv.Itoa(d.Threads)
	}, func(d *Definition, v string) (err error) {
		if d.Threads, err = strconv.Atoi(v); err != nil || d.Threads < 1 || d.Threads > 1024 {
			return fmt.Errorf("%q is no number from 1 to 1024", v)
		}
		return nil
	}},
	text("draft", true, func(d *Definition) *string { return &d.Draft }),
	text("draft-length", true, func(d *Definition) *string { return &d.DraftLength }),
	text("server", false, func(d *Definition) *string { return &d.Server }),
	text("url", false, func(d *Definition) *string { return &d.URL }),
	{"request", false, func(d *Definition) string { return string(d.Request) }, func(d *Definition, v string) error {
		d.Request = json.RawMessage(v)
		return nil
	}},
	text("bench", false, func(d *Definition) *string { return &d.Bench }),
	yesNo("speed-only", false, func(d *Definition) *bool { return &d.SpeedOnly }),
}

func text(name string, ours bool, field func(*Definition) *string) key {
	return key{name, ours, func(d *Definition) string { return *field(d) }, func(d *Definition, v string) error { *field(d) = v; return nil }}
}

func yesNo(name string, ours bool, field func(*Definition) *bool) key {
	return key{name, ours, func(d *Definition) string {
		if *field(d) {
			return "yes"
		}
		return ""
	}, func(d *Definition, v string) error {
		switch v {
		case "yes", "no":
			*field(d) = v == "yes"
			return nil
		}
		return fmt.Errorf("%q: yes or no", v)
	}}
}

// Keys are the words of a definition on a command line.
func Keys() []string {
	var names []string
	for _, k := range keys {
		names = append(names, k.name)
	}
	return names
}

// KeyError names a word that is no key.
type KeyError struct{ Key string }

func (e *KeyError) Error() string { return fmt.Sprintf("unknown key %q", e.Key) }

// ParseDefinition reads "NAME: key=value key=value …". Values with spaces stand
// in quotes, ' or ". It checks what can be known without opening anything.
func ParseDefinition(s string) (Definition, error) {
	var d Definition
	before, rest, ok := strings.Cut(s, ":")
	if d.Name = strings.TrimSpace(before); !ok || d.Name == "" || strings.Contains(d.Name, "=") {
		return d, fmt.Errorf("%q: want NAME: key=value …", s)
	}
	words, err := Fields(rest)
	if err != nil {
		return d, fmt.Errorf("%q: %w", d.Name, err)
	}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
		if i < 0 {
			return d, fmt.Errorf("%q: %w", d.Name, &KeyError{name})
		}
		if value == "" {
			return d, fmt.Errorf("%q: %s: want %s=VALUE", d.Name, name, name)
		}
		if keys[i].get(&d) != "" {
			return d, fmt.Errorf("%q: %s is given twice", d.Name, name)
		}
		if err := keys[i].set(&d, value); err != nil {
			return d, fmt.Errorf("%q: %s: %w", d.Name, name, err)
		}
	}
	return d, d.check()
}

// maxContestants bounds a list from a file.
const maxContestants = 64

// ReadDefinitions reads a JSON list of definitions.
func ReadDefinitions(r io.Reader) ([]Definition, error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	var list []Definition
	if err := dec.Decode(&list); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the list")
	}
	if len(list) > maxContestants {
		return nil, fmt.Errorf("%d contestants, at most %d", len(list), maxContestants)
	}
	for i := range list {
		if err := list[i].check(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// check says what cannot be meant.
func (d *Definition) check() error {
	if d.Name == "" || strings.ContainsAny(d.Name, "\n\r\t") {
		return fmt.Errorf("%q is no name of a contestant", d.Name)
	}
	if !d.Ours() {
		for _, k := range keys {
			if k.ours && k.get(d) != "" {
				return fmt.Errorf("%q: %s is for contestants that nrun runs itself; an external one has it in its command", d.Name, k.name)
			}
		}
	}
	if d.Bench != "" && (d.Server != "" || d.URL != "") {
		return fmt.Errorf("%q: both a bench and a server", d.Name)
	}
	if d.Bench != "" {
		d.SpeedOnly = true // it tells no tokens
	}
	if d.Server != "" && d.URL == "" {
		if !strings.Contains(d.Server, "{port}") {
			return fmt.Errorf("%q: no url, and no {port} in the server's command to make one of", d.Name)
		}
		d.URL = "http://127.0.0.1:{port}"
	}
	if len(d.Request) > 0 {
		if d.URL == "" {
			return fmt.Errorf("%q: a request without a server", d.Name)
		}
		var fields map[string]any
		if err := json.Unmarshal(d.Request, &fields); err != nil {
			return fmt.Errorf("%q: request: want a JSON object: %w", d.Name, err)
		}
	}
	return nil
}

// Text is the definition as it is written on a command line.
func (d *Definition) Text() string {
	var b strings.Builder
	b.WriteString(d.Name + ":")
	for _, k := range keys {
		v := k.get(d)
		switch {
		case v == "":
			continue
		case strings.Contains(v, `"`):
			v = "'" + v + "'"
		case strings.ContainsAny(v, " \t'"):
			v = `"` + v + `"`
		}
		b.WriteString(" " + k.name + "=" + v)
	}
	if d.Format != "" {
		fmt.Fprintf(&b, " (%s, %d bytes)", d.Format, d.Bytes)
	}
	return b.String()
}

// Fields splits at white space outside of quotes, ' or ", which are left out. A
// backslash is a character like any other.
func Fields(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	in, quote := false, rune(0)
	for _, r := range s {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			in, quote = true, r
		case r == ' ' || r == '\t' || r == '\n':
			if in {
				words = append(words, word.String())
				word.Reset()
			}
			in = false
		default:
			in = true
			word.WriteRune(r)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("the quote %c is not closed", quote)
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}
