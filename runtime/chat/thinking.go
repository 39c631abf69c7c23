package chat

import (
	"strings"

	"npack/runtime/tokenizer"
)

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// OpensThinking reports whether a prompt ends inside a thought, as templates
// of models that always think do: the answer's stream then starts with it.
func OpensThinking(prompt []tokenizer.Piece) bool {
	if len(prompt) == 0 || !prompt[len(prompt)-1].Markup {
		return false
	}
	text := prompt[len(prompt)-1].Text
	return strings.LastIndex(text, thinkOpen) > strings.LastIndex(text, thinkClose)
}

// Splitter takes an answer's text as it is generated and tells its thinking
// from the answer proper. Only a <think> that opens the answer counts, and
// only the first </think> after it: later ones are text. The newlines that
// models put around the two tags belong to neither part.
//
// What is held back is at most the length of a tag plus newlines; the parts
// given out, concatenated, do not depend on how the text is cut into chunks.
// The zero value is ready for use.
type Splitter struct {
	state splitState
	held  string
}

type splitState int

const (
	splitStart      splitState = iota // nothing but white space so far
	splitThinkStart                   // after <think>, newlines are dropped
	splitThink
	splitAnswerStart // after </think>, newlines are dropped
	splitAnswer
)

// NewSplitter returns a splitter; inside says that the text begins within a
// thought ([OpensThinking]).
func NewSplitter(inside bool) *Splitter {
	if inside {
		return &Splitter{state: splitThinkStart}
	}
	return &Splitter{}
}

// Thinking reports whether the text so far ends inside a thought.
func (s *Splitter) Thinking() bool { return s.state == splitThinkStart || s.state == splitThink }

// Write takes the next chunk and returns what is now certain of both parts.
func (s *Splitter) Write(chunk string) (thinking, answer string) {
	return s.run(chunk, false)
}

// Close returns what was held back. A thought that never ended is thinking.
func (s *Splitter) Close() (thinking, answer string) {
	return s.run("", true)
}

func (s *Splitter) run(chunk string, end bool) (thinking, answer string) {
	text := s.held + chunk
	s.held = ""
	for {
		switch s.state {
		case splitStart:
			body := strings.TrimLeft(text, " \t\r\n")
			if rest, ok := strings.CutPrefix(body, thinkOpen); ok {
				text, s.state = rest, splitThinkStart
				continue
			}
			if !end && strings.HasPrefix(thinkOpen, body) {
				s.held = text
				return
			}
			s.state = splitAnswer

		case splitThinkStart, splitAnswerStart:
			text = strings.TrimLeft(text, "\n")
			if text == "" {
				return
			}
			s.state++

		case splitThink:
			if before, rest, ok := strings.Cut(text, thinkClose); ok {
				thinking += strings.TrimRight(before, "\n")
				text, s.state = rest, splitAnswerStart
				continue
			}
			if end {
				thinking += strings.TrimRight(text, "\n")
				return
			}
			keep := heldBack(text)
			thinking += text[:keep]
			s.held = text[keep:]
			return

		case splitAnswer:
			answer += text
			return
		}
	}
}

// heldBack is the index in text from where it may be newlines before a
// closing tag, or the beginning of one.
func heldBack(text string) int {
	n := len(text)
	for k := min(len(thinkClose)-1, n); k > 0; k-- {
		if strings.HasSuffix(text, thinkClose[:k]) {
			n -= k
			break
		}
	}
	return len(strings.TrimRight(text[:n], "\n"))
}
