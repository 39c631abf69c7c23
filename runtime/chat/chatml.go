package chat

import (
	"context"

	"npack/runtime/tokenizer"
)

// chatML renders plain ChatML: every message between markers, nothing else.
//
//	<|im_start|>ROLE\nCONTENT<|im_end|>\n …  <|im_start|>assistant\n
type chatML struct{}

func (chatML) render(_ context.Context, msgs []Message, o Options) ([]tokenizer.Piece, error) {
	if o.Thinking != nil {
		return nil, ErrNoThinking
	}
	if err := knowsOnly(o.Args); err != nil {
		return nil, err
	}
	if len(o.Tools) > 0 {
		return nil, ErrNoTools
	}
	var p pieces
	for _, m := range msgs {
		if len(m.ToolCalls) > 0 {
			return nil, ErrNoTools
		}
		p.markup("<|im_start|>" + string(m.Role) + "\n")
		p.literal(m.Content)
		p.markup("<|im_end|>\n")
	}
	if o.AddGenerationPrompt {
		p.markup("<|im_start|>assistant\n")
	}
	return p, nil
}
