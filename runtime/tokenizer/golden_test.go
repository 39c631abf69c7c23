package tokenizer

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"npack/testdata/story"
	"npack/testdata/storydraft"
)

// What the reference gives; testdata/make_golden.py says how it was made.
//
//go:embed testdata/qwen3.json testdata/story.json testdata/classes.json
var golden embed.FS

type goldenFile struct {
	SHA256 string `json:"tokenizer_sha256"`
	Encode []struct {
		Text    string  `json:"text"`
		IDs     []int32 `json:"ids"`
		Literal []int32 `json:"literal"` // without added tokens, where that differs
		Decoded *string `json:"decoded"` // where it is not text
		Hidden  *string `json:"hidden"`  // without special tokens, where that differs
	} `json:"encode"`
	Decode []struct {
		IDs  []int32 `json:"ids"`
		Text string  `json:"text"`
	} `json:"decode"`
}

func readGolden(tb testing.TB, name string, v any) {
	tb.Helper()
	raw, err := golden.ReadFile("testdata/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		tb.Fatal(err)
	}
}

func storyTokenizer(tb testing.TB) *Tokenizer {
	tb.Helper()
	t, err := FromJSON(story.TokenizerJSON)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name string
		json func(testing.TB) []byte
	}{
		{"story.json", func(testing.TB) []byte { return story.TokenizerJSON }},
		{"qwen3.json", qwen3JSON},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := c.json(t)
			tok, err := FromJSON(data)
			if err != nil {
				t.Fatal(err)
			}
			var g goldenFile
			readGolden(t, c.name, &g)
			if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != g.SHA256 {
				t.Fatalf("tokenizer.json: sha256 %x, the vectors are for %s", sum, g.SHA256)
			}
			checkGolden(t, tok, &g)
		})
	}
}

func checkGolden(t *testing.T, tok *Tokenizer, g *goldenFile) {
	if len(g.Encode) < 500 || len(g.Decode) < 100 {
		t.Fatalf("%d texts and %d id sequences, expected 500 and 100 or more", len(g.Encode), len(g.Decode))
	}
	for _, c := range g.Encode {
		if got := tok.Encode(nil, c.Text); !slices.Equal(got, c.IDs) {
			t.Errorf("Encode(%+q)\n got %v\nwant %v", c.Text, got, c.IDs)
		}
		literal, decoded := c.Literal, c.Text
		if literal == nil {
			literal = c.IDs
		}
		if c.Decoded != nil {
			decoded = *c.Decoded
		}
		if got := tok.EncodeLiteral(nil, c.Text); !slices.Equal(got, literal) {
			t.Errorf("EncodeLiteral(%+q)\n got %v\nwant %v", c.Text, got, literal)
		}
		if got := tok.Decode(c.IDs, true); got != decoded {
			t.Errorf("Decode(%v, true)\n got %+q\nwant %+q", c.IDs, got, decoded)
		}
		if c.Hidden != nil {
			decoded = *c.Hidden
		}
		if got := tok.Decode(c.IDs, false); got != decoded {
			t.Errorf("Decode(%v, false)\n got %+q\nwant %+q", c.IDs, got, decoded)
		}
	}
	for _, c := range g.Decode {
		if got := tok.Decode(c.IDs, true); got != c.Text {
			t.Errorf("Decode(%v, true)\n got %+q\nwant %+q", c.IDs, got, c.Text)
		}
	}
}

// TestClasses compares the class of every code point, its NFC, and its place
// among combining marks, with the reference.
func TestClasses(t *testing.T) {
	var want struct {
		Classes string `json:"classes_sha256"`
		NFC     string `json:"nfc_sha256"`
		Marks   string `json:"marks_sha256"`
	}
	readGolden(t, "classes.json", &want)
	classes, forms, marks := sha256.New(), sha256.New(), sha256.New()
	scan := newScanner()
	var buf []byte
	for r := range rune(utf8.MaxRune + 1) {
		if !utf8.ValidRune(r) {
			continue
		}
		s := string(r)
		got, n := scan.at(s, 0)
		if slow := slowClass(r); got != slow || n != len(s) {
			t.Fatalf("%U: class %d, %d bytes, expected %d, %d", r, got, n, slow, len(s))
		}
		buf = append(buf, "OLNSS"[got])
		forms.Write([]byte(nfc(s) + "\n"))
		marks.Write([]byte(nfc("e"+s+"\u0316\u0301") + "\n"))
	}
	classes.Write(buf)
	if got := hex.EncodeToString(classes.Sum(nil)); got != want.Classes {
		t.Errorf("classes: sha256 %s, expected %s", got, want.Classes)
	}
	if got := hex.EncodeToString(forms.Sum(nil)); got != want.NFC {
		t.Errorf("NFC: sha256 %s, expected %s", got, want.NFC)
	}
	if got := hex.EncodeToString(marks.Sum(nil)); got != want.Marks {
		t.Errorf("NFC among marks: sha256 %s, expected %s", got, want.Marks)
	}
}

// TestTrajectories: every prompt and every decoded text of the two embedded
// models.
func TestTrajectories(t *testing.T) {
	for _, c := range []struct {
		name         string
		tokenizer    []byte
		trajectories []byte
	}{
		{"story", story.TokenizerJSON, story.Trajectories},
		{"storydraft", storydraft.TokenizerJSON, storydraft.Trajectories},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok, err := FromJSON(c.tokenizer)
			if err != nil {
				t.Fatal(err)
			}
			var file struct {
				Trajectories []struct {
					PromptText string  `json:"prompt_text"`
					PromptIDs  []int32 `json:"prompt_ids"`
					IDs        []int32 `json:"ids"`
					Text       string  `json:"text"`
				} `json:"trajectories"`
			}
			if err := json.Unmarshal(c.trajectories, &file); err != nil {
				t.Fatal(err)
			}
			if len(file.Trajectories) != 24 {
				t.Fatalf("%d trajectories, expected 24", len(file.Trajectories))
			}
			for i, x := range file.Trajectories {
				if got := tok.Encode(nil, x.PromptText); !slices.Equal(got, x.PromptIDs) {
					t.Errorf("trajectory %d: prompt ids\n got %v\nwant %v", i, got, x.PromptIDs)
				}
				if got := tok.Decode(x.IDs, true); got != x.Text {
					t.Errorf("trajectory %d: text\n got %q\nwant %q", i, got, x.Text)
				}
			}
		})
	}
}
