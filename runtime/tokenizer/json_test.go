package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"npack/testdata/story"
)

// edit returns the story model's tokenizer.json after change.
func edit(tb testing.TB, change func(f map[string]any)) []byte {
	tb.Helper()
	var f map[string]any
	if err := json.Unmarshal(story.TokenizerJSON, &f); err != nil {
		tb.Fatal(err)
	}
	change(f)
	out, err := json.Marshal(f)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// obj goes down a path of keys and indices.
func obj(v any, path ...any) map[string]any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(map[string]any)[p]
		case int:
			v = v.([]any)[p]
		}
	}
	return v.(map[string]any)
}

func TestRefused(t *testing.T) {
	split := []any{"pre_tokenizer", "pretokenizers", 0}
	level := []any{"pre_tokenizer", "pretokenizers", 1}
	set := func(key string, value any, path ...any) func(map[string]any) {
		return func(f map[string]any) { obj(f, path...)[key] = value }
	}
	rename := func(from, to string) func(map[string]any) {
		return func(f map[string]any) {
			vocab := obj(f, "model", "vocab")
			vocab[to] = vocab[from]
			delete(vocab, from)
		}
	}
	type m = map[string]any
	for _, c := range []struct {
		name   string
		change func(map[string]any)
		kind   error
		says   string // part of the message
	}{
		{"GPT-2 pattern", set("Regex", `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, append(split, "pattern")...), ErrUnsupported, `\\p{N}+`},
		{"Llama 3 pattern", set("Regex", strings.Replace(qwen2Pattern, `\p{N}|`, `\p{N}{1,3}|`, 1), append(split, "pattern")...), ErrUnsupported, "{1,3}"},
		{"string pattern", set("pattern", m{"String": " "}, split...), ErrUnsupported, "pattern"},
		{"split removes", set("behavior", "Removed", split...), ErrUnsupported, "Removed"},
		{"split inverted", set("invert", true, split...), ErrUnsupported, "invert"},
		{"byte level alone", set("pre_tokenizer", m{"type": "ByteLevel", "add_prefix_space": false}), ErrUnsupported, "ByteLevel"},
		{"no pre-tokenizer", set("pre_tokenizer", nil), ErrUnsupported, "pre_tokenizer"},
		{"metaspace", set("pre_tokenizer", m{"type": "Metaspace"}), ErrUnsupported, "Metaspace"},
		{"prefix space", set("add_prefix_space", true, level...), ErrUnsupported, "add_prefix_space"},
		{"prefix space by default", func(f map[string]any) { delete(obj(f, level...), "add_prefix_space") }, ErrUnsupported, "add_prefix_space"},
		{"second pattern", set("use_regex", true, level...), ErrUnsupported, "use_regex"},
		{"NFKC", set("normalizer", m{"type": "NFKC"}), ErrUnsupported, "NFKC"},
		{"two normalizers", set("normalizer", m{"type": "Sequence", "normalizers": []any{m{"type": "NFC"}, m{"type": "Lowercase"}}}), ErrUnsupported, "Lowercase"},
		{"Unigram", set("type", "Unigram", "model"), ErrUnsupported, "Unigram"},
		{"no model type", set("type", nil, "model"), ErrUnsupported, "model"},
		{"no model", set("model", nil), ErrCorrupt, "model"},
		{"dropout", set("dropout", 0.1, "model"), ErrUnsupported, "dropout"},
		{"byte fallback", set("byte_fallback", true, "model"), ErrUnsupported, "byte_fallback"},
		{"ignore merges", set("ignore_merges", true, "model"), ErrUnsupported, "ignore_merges"},
		{"suffix", set("end_of_word_suffix", "</w>", "model"), ErrUnsupported, "</w>"},
		{"prefix", set("continuing_subword_prefix", "##", "model"), ErrUnsupported, "##"},
		{"decoder", set("type", "Metaspace", "decoder"), ErrUnsupported, "Metaspace"},
		{"no decoder", set("decoder", nil), ErrUnsupported, "decoder"},
		{"post-processor", set("type", "TemplateProcessing", "post_processor"), ErrUnsupported, "TemplateProcessing"},
		{"truncation", set("truncation", m{"max_length": 8}), ErrUnsupported, "truncation"},
		{"padding", set("padding", m{"strategy": "BatchLongest"}), ErrUnsupported, "padding"},
		{"single word", set("single_word", true, "added_tokens", 0), ErrUnsupported, "single_word"},
		{"left strip", set("lstrip", true, "added_tokens", 0), ErrUnsupported, "lstrip"},
		{"right strip", set("rstrip", true, "added_tokens", 0), ErrUnsupported, "rstrip"},
		{"normalized", set("normalized", true, "added_tokens", 0), ErrUnsupported, "normalized"},
		{"added id negative", set("id", -1, "added_tokens", 0), ErrUnsupported, "-1"},
		{"added id huge", set("id", int64(1)<<40, "added_tokens", 0), ErrUnsupported, "1099511627776"},
		{"added id taken", set("id", 5, "added_tokens", 0), ErrUnsupported, "id 5"},
		{"added id not the next", set("id", 4094, "added_tokens", 0), ErrUnsupported, "4093"},
		{"added id twice", set("id", 4093, "added_tokens", 1), ErrUnsupported, "4094"},
		{"added text twice", set("content", "<|im_end|>", "added_tokens", 0), ErrCorrupt, "<|im_end|>"},
		{"added text empty", set("content", "", "added_tokens", 0), ErrCorrupt, "empty"},
		{"added text long", set("content", strings.Repeat("x", 513), "added_tokens", 0), ErrUnsupported, "513"},
		{"id taken", set("zz", 7, "model", "vocab"), ErrCorrupt, "id 7"},
		{"id huge", set("zz", 1<<30, "model", "vocab"), ErrCorrupt, "1073741824"},
		{"id negative", set("zz", -3, "model", "vocab"), ErrCorrupt, "-3"},
		{"id fraction", set("zz", 1.5, "model", "vocab"), ErrCorrupt, "1.5"},
		{"id text", set("zz", "7", "model", "vocab"), ErrCorrupt, "zz"},
		{"id object", set("zz", m{"a": 1}, "model", "vocab"), ErrCorrupt, "zz"},
		{"empty token", set("", 4092, "model", "vocab"), ErrUnsupported, "empty"},
		{"other alphabet", rename("A", "▁the"), ErrUnsupported, "U+2581"},
		{"no vocab", set("vocab", m{}, "model"), ErrCorrupt, "model.vocab"},
		{"vocab a list", set("vocab", []any{}, "model"), ErrCorrupt, "model.vocab"},
		{"no byte", rename("A", "AAA"), ErrUnsupported, "0x41"},
		{"merges an object", set("merges", m{}, "model"), ErrCorrupt, "model.merges"},
		{"merge of three", set("merges", []any{"h e y"}, "model"), ErrCorrupt, "model.merges[0]"},
		{"merge list of three", set("merges", []any{[]any{"h", "e", "y"}}, "model"), ErrCorrupt, "model.merges[0]"},
		{"merge list of one", set("merges", []any{"h e", []any{"h"}}, "model"), ErrCorrupt, "model.merges[1]"},
		{"merge of numbers", set("merges", []any{[]any{1, 2}}, "model"), ErrCorrupt, "model.merges[0]"},
		{"merge unknown", set("merges", []any{"q zqzq"}, "model"), ErrCorrupt, "zqzq"},
		{"merge twice", set("merges", []any{"h e", "h e"}, "model"), ErrCorrupt, "merge 1"},
		{"merge outside", set("merges", []any{"h ▁"}, "model"), ErrCorrupt, "U+2581"},
		{"merge of an added token", set("merges", []any{"<|im_end|> <"}, "model"), ErrCorrupt, "<|im_end|>"},
		{"flag a string", set("special", "yes", "added_tokens", 0), ErrCorrupt, "special"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok, err := FromJSON(edit(t, c.change))
			if tok != nil || !errors.Is(err, c.kind) {
				t.Fatalf("error %v, expected %v", err, c.kind)
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, expected %q in one line", err, c.says)
			}
		})
	}
}

// TestAccepted: forms that differ and mean the same.
func TestAccepted(t *testing.T) {
	want := storyTokenizer(t).Encode(nil, benchTexts[0].text)
	for name, change := range map[string]func(map[string]any){
		"nothing":           func(map[string]any) {},
		"no post-processor": func(f map[string]any) { f["post_processor"] = nil },
		"normalizer in a sequence": func(f map[string]any) {
			f["normalizer"] = map[string]any{"type": "Sequence", "normalizers": []any{f["normalizer"]}}
		},
		"no dropout": func(f map[string]any) { obj(f, "model")["dropout"] = 0.0 },
		"empty affixes": func(f map[string]any) {
			obj(f, "model")["continuing_subword_prefix"] = ""
			obj(f, "model")["end_of_word_suffix"] = ""
		},
		"merges as strings": func(f map[string]any) {
			merges := obj(f, "model")["merges"].([]any)
			for i, m := range merges {
				merges[i] = fmt.Sprintf("%s %s", m.([]any)...)
			}
		},
		"added tokens in the vocabulary too": func(f map[string]any) {
			for _, a := range f["added_tokens"].([]any) {
				obj(f, "model", "vocab")[obj(a)["content"].(string)] = obj(a)["id"]
			}
		},
	} {
		tok, err := FromJSON(edit(t, change))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := tok.Encode(nil, benchTexts[0].text); !slices.Equal(got, want) {
			t.Errorf("%s: other ids", name)
		}
	}
	for _, normalizer := range []any{nil, map[string]any{"type": "Sequence", "normalizers": []any{}}} {
		tok, err := FromJSON(edit(t, func(f map[string]any) { f["normalizer"] = normalizer }))
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.Decode(tok.Encode(nil, "e\u0301"), false); got != "e\u0301" {
			t.Errorf("normalizer %v: %+q", normalizer, got)
		}
	}
}

func TestBrokenJSON(t *testing.T) {
	whole := story.TokenizerJSON
	for _, c := range []struct {
		name string
		data []byte
		kind error
		says string
	}{
		{"nothing", nil, ErrTruncated, "empty"},
		{"blank", []byte(" \n"), ErrTruncated, "empty"},
		{"cut", whole[:len(whole)/2], ErrTruncated, fmt.Sprint("byte ", len(whole)/2)},
		{"cut by one", bytes.TrimSpace(whole)[:len(bytes.TrimSpace(whole))-1], ErrTruncated, "byte"},
		{"a page", []byte("<!DOCTYPE html>"), ErrCorrupt, "byte 1"},
		{"not UTF-8", []byte("{\"a\": \"\xff\"}"), ErrCorrupt, "byte 7"},
		{"a list", []byte("[]"), ErrCorrupt, "array"},
		{"a number", []byte("17"), ErrCorrupt, "number"},
		{"null", []byte("null"), ErrCorrupt, "model"},
		{"an empty object", []byte("{}"), ErrCorrupt, "model"},
		{"deep", bytes.Repeat([]byte("["), 1<<20), ErrCorrupt, "depth"},
		{"deep normalizer", []byte(`{"normalizer":` + strings.Repeat(`{"normalizers":[`, 4000)), ErrTruncated, "byte"},
		{"lone surrogate", []byte(`{"model":{"type":"BPE","vocab":{"\ud800":0}}}`), ErrCorrupt, ""},
	} {
		tok, err := FromJSON(c.data)
		if tok != nil || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, expected %q", c.name, err, c.says)
			continue
		}
		if c.name == "lone surrogate" {
			continue // any refusal will do
		}
		if !errors.Is(err, c.kind) {
			t.Errorf("%s: error %v, expected %v", c.name, err, c.kind)
		}
	}
}

// TestSmallCost: a short file cannot ask for much memory by large ids.
func TestSmallCost(t *testing.T) {
	data := fmt.Appendf(nil, `{"model":{"type":"BPE","vocab":{"a":%d}}}`, maxTokens-1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := FromJSON(data); err == nil {
		t.Error("accepted")
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("%d bytes allocated for %d bytes of JSON", used, len(data))
	}
}

func FuzzFromJSON(f *testing.F) {
	f.Add(tinyJSON(f))
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a a"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := FromJSON(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrTruncated) {
				t.Errorf("error of no kind: %v", err)
			}
			return
		}
		checkUsable(t, tok)
	})
}

// checkUsable encodes and decodes a little and goes through the cache form.
func checkUsable(t *testing.T, tok *Tokenizer) {
	t.Helper()
	const text = "Hello <|end|> aabb'S 12\r\n\U0001f642 abababab"
	ids := tok.EncodeLiteral(nil, text)
	if got := tok.Decode(ids, true); got != text {
		t.Errorf("decodes to %q", got)
	}
	tok.Encode(nil, text)
	for id := range int32(tok.Len()) {
		tok.Token(id)
	}
	again, err := decodeCache(tok.encodeCache([32]byte{1}), [32]byte{1})
	if err != nil {
		t.Fatalf("cache: %v", err)
	}
	if got := again.EncodeLiteral(nil, text); !slices.Equal(got, ids) {
		t.Errorf("from the cache %v, expected %v", got, ids)
	}
}

// tinyJSON is the tokenizer of tiny as a tokenizer.json.
func tinyJSON(tb testing.TB) []byte {
	tb.Helper()
	v := tinyVocab()
	return edit(tb, func(f map[string]any) {
		vocab := map[string]any{}
		for id, name := range v.Tokens {
			if name != "" {
				vocab[name] = id
			}
		}
		var added []any
		for _, a := range v.Added {
			added = append(added, map[string]any{"id": a.ID, "content": a.Text, "special": a.Special})
		}
		f["added_tokens"], obj(f, "model")["vocab"], obj(f, "model")["merges"] = added, vocab, v.Merges
	})
}
