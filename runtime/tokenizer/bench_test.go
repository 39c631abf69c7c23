package tokenizer

import (
	"crypto/sha256"
	"strings"
	"testing"
)

func BenchmarkFromJSON(b *testing.B) {
	data := qwen3JSON(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := FromJSON(data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoad is what a user waits for: the hash of 11 MB of JSON, the cache
// file, its checks, and the tables.
func BenchmarkLoad(b *testing.B) {
	data, dir := qwen3JSON(b), b.TempDir()
	if _, err := Load(data, dir); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(data, dir); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeCache(b *testing.B) {
	sum := sha256.Sum256(nil)
	raw := qwen3(b).encodeCache(sum)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeCache(raw, sum); err != nil {
			b.Fatal(err)
		}
	}
}

var benchTexts = []struct{ name, text string }{
	{"english", strings.Repeat("The quick brown fox, they'd said, jumps over 13 lazy dogs; it wasn't obvious why.\n", 200)},
	{"code", strings.Repeat("func (t *Tokenizer) Len() int { return len(t.ends) } // 0x1f, a[i] != nil\n\t\tif err != nil {\n", 200)},
	{"chinese", strings.Repeat("中文分词测试，今天天气很好。日本語のテキストも少し。", 200)},
	{"nospace", strings.Repeat("abcdefghijklmnopqrstuvwxyz", 1<<15)},
}

func BenchmarkEncode(b *testing.B) {
	t := qwen3(b)
	for _, c := range benchTexts {
		b.Run(c.name, func(b *testing.B) {
			var ids []int32
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				ids = t.Encode(ids[:0], c.text)
			}
			b.ReportMetric(float64(len(c.text))/float64(len(ids)), "bytes/token")
		})
	}
}

func BenchmarkStream(b *testing.B) {
	t := qwen3(b)
	ids := t.Encode(nil, benchTexts[2].text)
	s := t.NewStream(false)
	var out []byte
	b.SetBytes(int64(len(benchTexts[2].text)))
	b.ReportAllocs()
	for b.Loop() {
		out = out[:0]
		for _, id := range ids {
			out = s.Append(out, id)
		}
		out = s.Flush(out)
	}
}
