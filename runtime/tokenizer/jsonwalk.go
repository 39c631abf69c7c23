package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// vocabMap and pairList read the two big values of tokenizer.json. Through
// encoding/json's maps and slices of slices they would cost ten times as much;
// it has checked the syntax before it hands the bytes over, so what follows
// only has to tell kinds of values apart.

// vocabMap is {"token": id, …} in the order of the file.
type vocabMap struct {
	names []string
	ids   []int32
	max   int32
}

// byID returns the tokens in a slice by id.
func (v *vocabMap) byID() ([]string, error) {
	tokens := make([]string, v.max+1)
	for i, id := range v.ids {
		if tokens[id] != "" {
			return nil, fmt.Errorf("model.vocab: id %d: tokens %q and %q: %w, expected one token", id, tokens[id], v.names[i], ErrCorrupt)
		}
		tokens[id] = v.names[i]
	}
	return tokens, nil
}

// UnmarshalJSON is called by encoding/json with one well-formed value.
func (v *vocabMap) UnmarshalJSON(raw []byte) error {
	*v = vocabMap{}
	w := walker{s: string(raw)}
	if !w.take('{') {
		return fmt.Errorf("model.vocab: %w", w.wrong("an object"))
	}
	for !w.take('}') {
		name, err := w.text()
		if err != nil {
			return fmt.Errorf("model.vocab: %w", err)
		}
		if name == "" {
			return fmt.Errorf("model.vocab: empty token: %w", ErrUnsupported)
		}
		w.take(':')
		digits := w.scalar()
		id, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || id < 0 || id >= maxTokens {
			return fmt.Errorf("model.vocab: %q: id %.40q: %w, expected 0 to %d", name, digits, ErrCorrupt, maxTokens-1)
		}
		v.names = append(v.names, name)
		v.ids = append(v.ids, int32(id))
		v.max = max(v.max, int32(id))
		w.take(',')
	}
	return nil
}

// pairList is ["a b", …], or [["a", "b"], …] as the library has written since
// version 0.20.
type pairList [][2]string

// UnmarshalJSON is called by encoding/json with one well-formed value.
func (p *pairList) UnmarshalJSON(raw []byte) error {
	*p = nil
	w := walker{s: string(raw)}
	if !w.take('[') {
		return fmt.Errorf("model.merges: %w", w.wrong("an array"))
	}
	for !w.take(']') {
		pair, err := w.pair()
		if err != nil {
			return fmt.Errorf("model.merges[%d]: %w", len(*p), err)
		}
		*p = append(*p, pair)
		w.take(',')
	}
	return nil
}

// pair reads one merge in either form.
func (w *walker) pair() (pair [2]string, err error) {
	if w.take('[') {
		for i := range pair {
			if pair[i], err = w.text(); err != nil {
				return pair, err
			}
			w.take(',')
		}
		if !w.take(']') {
			return pair, w.wrong("two strings")
		}
		return pair, nil
	}
	both, err := w.text()
	if err != nil {
		return pair, err
	}
	var ok bool
	if pair[0], pair[1], ok = strings.Cut(both, " "); !ok || strings.Contains(pair[1], " ") {
		return pair, fmt.Errorf("%.60q: %w, expected two tokens and one space", both, ErrCorrupt)
	}
	return pair, nil
}

// walker goes through well-formed JSON.
type walker struct {
	s string
	i int
}

// take goes past white space, and past c if it is next.
func (w *walker) take(c byte) bool {
	for w.i < len(w.s) && (w.s[w.i] == ' ' || w.s[w.i] == '\n' || w.s[w.i] == '\t' || w.s[w.i] == '\r') {
		w.i++
	}
	if w.i < len(w.s) && w.s[w.i] == c {
		w.i++
		return true
	}
	return false
}

// text reads a string; it shares w's memory unless it holds an escape.
func (w *walker) text() (string, error) {
	if !w.take('"') {
		return "", w.wrong("a string")
	}
	start, escaped := w.i, false
	for w.i < len(w.s) && w.s[w.i] != '"' {
		if w.s[w.i] == '\\' {
			escaped = true
			w.i++
		}
		w.i++
	}
	w.i++
	if escaped {
		return unquote(w.s[start-1 : w.i])
	}
	return w.s[start : w.i-1], nil
}

func unquote(quoted string) (s string, err error) {
	if err = json.Unmarshal([]byte(quoted), &s); err != nil {
		return "", fmt.Errorf("%.40q: %v: %w", quoted, err, ErrCorrupt)
	}
	return s, nil
}

// scalar returns the text of a number, or of anything else up to the next
// delimiter.
func (w *walker) scalar() string {
	w.take(0)
	start := w.i
	for w.i < len(w.s) && !strings.ContainsRune(",:]}\" \n\t\r", rune(w.s[w.i])) {
		w.i++
	}
	return w.s[start:w.i]
}

func (w *walker) wrong(expected string) error {
	return fmt.Errorf("found %.20q: %w, expected %s", w.s[w.i:], ErrCorrupt, expected)
}
