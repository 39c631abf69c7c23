package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Models were trained on JSON as Python prints it: keys in the order given, a
// space after comma and colon, 1e3 as 1000.0, nothing outside ASCII escaped.
// encoding/json sorts keys and escapes more, so this file has its own tree.

// object is a JSON object with its keys in order. A key given twice keeps its
// first place and its last value, as in Python.
type object struct {
	keys []string
	vals map[string]any
}

func (o *object) set(key string, v any) {
	if _, ok := o.vals[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.vals[key] = v
}

var errNotJSON = errors.New("not a JSON value")

// decodeJSON returns raw as nil, bool, json.Number, string, []any or *object.
func decodeJSON(raw []byte) (any, error) {
	// Valid also bounds the depth of nesting, which decodeNext relies on.
	if !json.Valid(raw) {
		var v any
		err := json.Unmarshal(raw, &v) // says where
		return nil, fmt.Errorf("%w: %w", errNotJSON, err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := decodeNext(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errNotJSON
	}
	return v, nil
}

func decodeNext(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := decodeNext(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	case json.Delim('{'):
		o := &object{vals: map[string]any{}}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := decodeNext(d)
			if err != nil {
				return nil, err
			}
			o.set(key.(string), v) // More and Valid: a key is a string
		}
		_, err := d.Token()
		return o, err
	}
	if n, ok := t.(json.Number); ok {
		if _, err := strconv.ParseFloat(n.String(), 64); err != nil {
			return nil, fmt.Errorf("%w: number %.40s is out of range", errNotJSON, n)
		}
	}
	return t, nil
}

// pythonJSON prints raw as Python's json.dumps(x, ensure_ascii=False) does.
func pythonJSON(raw []byte) (string, error) {
	v, err := decodeJSON(raw)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	plainJSON.write(&b, v, "")
	return b.String(), nil
}

// jsonStyle are the settings of json.dumps that templates use.
type jsonStyle struct {
	item, key string // what stands between items, and between key and value
	indent    string // of one level; "" is all on one line
	multiline bool   // Python's indent=0 breaks lines, too
}

var plainJSON = jsonStyle{item: ", ", key: ": "}

// write prints a tree of decodeJSON. begin is a newline and the indent of the
// line on which v begins, or "".
func (s jsonStyle) write(b *strings.Builder, v any, begin string) {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case json.Number:
		b.WriteString(pythonNumber(v.String()))
	case string:
		writeJSONString(b, v)
	case []any:
		s.sequence(b, '[', ']', len(v), begin, func(i int, begin string) {
			s.write(b, v[i], begin)
		})
	case *object:
		s.sequence(b, '{', '}', len(v.keys), begin, func(i int, begin string) {
			writeJSONString(b, v.keys[i])
			b.WriteString(s.key)
			s.write(b, v.vals[v.keys[i]], begin)
		})
	}
}

func (s jsonStyle) sequence(b *strings.Builder, open, end byte, n int, begin string, one func(i int, begin string)) {
	b.WriteByte(open)
	inner := ""
	if s.multiline {
		if begin == "" {
			begin = "\n"
		}
		inner = begin + s.indent
	}
	for i := range n {
		if i > 0 {
			b.WriteString(s.item)
		}
		b.WriteString(inner)
		one(i, inner)
	}
	if n > 0 && s.multiline {
		b.WriteString(begin)
	}
	b.WriteByte(end)
}

// pythonNumber keeps integers of any size and prints others as repr(float).
func pythonNumber(s string) string {
	if !strings.ContainsAny(s, ".eE") {
		if s == "-0" {
			return "0"
		}
		return s
	}
	f, _ := strconv.ParseFloat(s, 64) // checked by decodeNext
	e := strconv.FormatFloat(f, 'e', -1, 64)
	exp, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:])
	if exp < -4 || exp >= 16 {
		return e
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func writeJSONString(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch r {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			if r < 0x20 {
				fmt.Fprintf(b, `\u%04x`, r)
			} else {
				b.WriteRune(r)
			}
		}
	}
	b.WriteByte('"')
}
