package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// This is the only file that knows the Jinja library. The library sets no
// limit to what a template may do, and some of what it may do ends the whole
// process (a macro that calls itself without end, a list that holds itself),
// so this code runs in the child process of sandbox.go only.

// runJinja renders text once with each of the contexts, which are JSON
// objects.
func runJinja(text string, contexts []json.RawMessage) (out []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("the template engine gave up: %v", p)
		}
	}()
	src, err := jinjaSource(text)
	if err != nil {
		return nil, err
	}
	t, err := jinja.Compile(src)
	if err != nil {
		return nil, err
	}
	for _, c := range contexts {
		v, err := decodeJSON(c)
		if err != nil {
			return nil, err
		}
		vars := map[string]jinja.Value{}
		for k, v := range v.(*object).vals {
			vars[k] = jinjaValue(v)
		}
		vars[jsonFilter] = jinja.NewCallable("tojson", toJSON)
		s, err := t.RenderValues(vars)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func jinjaValue(v any) jinja.Value {
	switch v := v.(type) {
	case bool:
		return jinja.NewBool(v)
	case string:
		return jinja.NewString(v)
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
				return jinja.NewInt(n)
			}
		}
		f, _ := v.Float64() // checked by decodeJSON
		return jinja.NewFloat(f)
	case []any:
		items := make([]jinja.Value, len(v))
		for i, e := range v {
			items[i] = jinjaValue(e)
		}
		return jinja.NewList(items)
	case *object:
		d := jinja.NewDict()
		for _, k := range v.keys {
			d.AsDict().Set(k, jinjaValue(v.vals[k]))
		}
		return d
	}
	return jinja.None()
}

// toJSON is the filter tojson as transformers defines it for chat templates:
// json.dumps, which does not escape what is outside ASCII.
func toJSON(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 {
		return jinja.None(), fmt.Errorf("tojson: %d values, expected one", len(args))
	}
	style, sorted := plainJSON, false
	if v, ok := kwargs["indent"]; ok && !v.IsNone() {
		if !v.IsInt() || v.AsInt() < 0 || v.AsInt() > 64 {
			return jinja.None(), fmt.Errorf("tojson: indent %s, expected 0 to 64", v)
		}
		style.multiline, style.indent = true, strings.Repeat(" ", int(v.AsInt()))
		style.item = "," // Python's default where lines are broken
	}
	for k, v := range kwargs {
		switch k {
		case "indent":
		case "sort_keys":
			sorted = v.IsTruthy()
		case "ensure_ascii":
			if v.IsTruthy() {
				return jinja.None(), fmt.Errorf("tojson: ensure_ascii is not supported")
			}
		case "separators":
			if v.IsNone() {
				continue
			}
			if !v.IsList() || v.AsList().Len() != 2 || !v.AsList().Get(0).IsString() || !v.AsList().Get(1).IsString() {
				return jinja.None(), fmt.Errorf("tojson: separators %s, expected two strings", v)
			}
			style.item, style.key = v.AsList().Get(0).AsString(), v.AsList().Get(1).AsString()
		default:
			return jinja.None(), fmt.Errorf("tojson: unknown argument %q", k)
		}
	}
	v, err := jsonTree(args[0], sorted)
	if err != nil {
		return jinja.None(), err
	}
	var b strings.Builder
	style.write(&b, v, "")
	return jinja.NewString(b.String()), nil
}

// jsonTree is the inverse of jinjaValue.
func jsonTree(v jinja.Value, sorted bool) (any, error) {
	switch {
	case v.IsNone():
		return nil, nil
	case v.IsBool():
		return v.AsBool(), nil
	case v.IsString():
		return v.AsString(), nil
	case v.IsInt():
		return json.Number(strconv.FormatInt(v.AsInt(), 10)), nil
	case v.IsFloat():
		s := strconv.FormatFloat(v.AsFloat(), 'e', -1, 64) // pythonNumber makes it pretty
		return json.Number(s), nil
	case v.IsList():
		list := []any{}
		for _, e := range v.AsList().Items {
			t, err := jsonTree(e, sorted)
			if err != nil {
				return nil, err
			}
			list = append(list, t)
		}
		return list, nil
	case v.IsDict():
		o := &object{vals: map[string]any{}}
		keys := v.AsDict().OrderedKeys()
		if sorted {
			slices.Sort(keys)
		}
		for _, k := range keys {
			e, _ := v.AsDict().Get(k)
			t, err := jsonTree(e, sorted)
			if err != nil {
				return nil, err
			}
			o.set(k, t)
		}
		return o, nil
	}
	return nil, fmt.Errorf("tojson: %s is no JSON value", v)
}
