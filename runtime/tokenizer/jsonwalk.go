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
		return w.wrong("model.vocab", "an object")
	}
	for !w.take('}') {
		name, err := w.text("model.vocab")
		if err != nil {
			return err
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
		return w.wrong("model.merges", "an array")
	}
	for !w.take(']') {
		place := "model.merges[" + strconv.Itoa(len(*p)) + "]"
		var pair [2]string
		var err error
		if w.take('[') {
			for i := range pair {
				if pair[i], err = w.text(place); err != nil {
					return err
				}
				w.take(',')
			}
			if !w.take(']') {
				return w.wrong(place, "two strings")
			}
		} else {
			both, err := w.text(place)
			if err != nil {
				return err
			}
			var ok bool
			if pair[0], pair[1], ok = strings.Cut(both, " "); !ok || strings.Contains(pair[1], " ") {
				return fmt.Errorf("%s: %.60q: %w, expected two tokens and one space", place, both, ErrCorrupt)
			}
		}
		*p = append(*p, pair)
		w.take(',')
	}
	return nil
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
func (w *walker) text(place string) (string, error) {
	if !w.take('"') {
		return "", w.wrong(place, "a string")
	}
	start, escaped := w.i, false
	for w.i < len(w.s) && w.s[w.i] != '"' {
		if w.s[w.i] == '\\' {
			escaped = true
			w.i++
		}
		w.i++
	}
	s := w.s[start:w.i]
	w.i++
	if escaped {
		if err := json.Unmarshal([]byte(w.s[start-1:w.i]), &s); err != nil {
			return "", fmt.Errorf("%s: %v: %w", place, err, ErrCorrupt)
		}
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

func (w *walker) wrong(place, expected string) error {
	return fmt.Errorf("%s: found %.20q: %w, expected %s", place, w.s[min(w.i, len(w.s)):], ErrCorrupt, expected)
}
