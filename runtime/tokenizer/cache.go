package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// A cache file is what New makes of a tokenizer.json, without the tables that
// lookups need; making those is quicker than reading them. All numbers are
// little-endian uint32.
//
//	offset  size         what
//	0       8            cacheMagic, the last byte is the version
//	8       32           sha256 of the tokenizer.json it was made from
//	40      20           number of ids T, bytes of text B, merges M, added A; 1 if NFC
//	60      4 T          end of each token in the text
//	.       12 M         left, right, result of each merge, lowest rank first
//	.       4 A          added tokens: id*2, plus 1 if special
//	.       B            text
//	.       32           sha256 of everything before
const (
	cacheMagic = "NPTOKEN\x01"
	cacheFixed = 8 + 32 + 20
)

// smallJSON is the size in bytes up to which a tokenizer.json is parsed in a
// few milliseconds, so that a cache file would be litter.
const smallJSON = 1 << 20

// CacheDir returns the directory for cache files in the user's cache
// directory, or "" if the system names none.
func CacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "npack", "tokenizer")
}

// Load is [FromJSON] with a cache in dir, which it makes if need be; "" means
// without. A cache file is found by the sha256 of data. One that is missing,
// broken, of another version or for other data is written anew; that it cannot
// be written is no error, the next call is merely as slow as this one.
func Load(data []byte, dir string) (*Tokenizer, error) {
	if dir == "" || len(data) <= smallJSON {
		return FromJSON(data)
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(dir, hex.EncodeToString(sum[:])+".tokens")
	if raw, err := readCache(path, len(data)); err == nil {
		if t, err := decodeCache(raw, sum); err == nil {
			return t, nil
		}
	}
	t, err := FromJSON(data)
	if err != nil {
		return nil, err
	}
	_ = writeCache(path, t.encodeCache(sum)) // a cache not written is no error
	return t, nil
}

// readCache reads a file that is no larger than one made from source bytes of
// JSON can be: each id, merge and token takes more in JSON.
func readCache(path string, source int) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > int64(4*source)+cacheFixed+sha256.Size {
		return nil, errors.New("not a cache file")
	}
	return os.ReadFile(path)
}

// writeCache writes beside the target and renames, so that no reader sees half
// a file.
func writeCache(path string, raw []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tokens-*")
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

func (t *Tokenizer) encodeCache(source [sha256.Size]byte) []byte {
	le := binary.LittleEndian
	nfc := uint32(0)
	if t.nfc {
		nfc = 1
	}
	b := make([]byte, 0, cacheFixed+4*len(t.ends)+12*len(t.merges)+4*len(t.added)+len(t.text)+sha256.Size)
	b = append(append(b, cacheMagic...), source[:]...)
	for _, n := range []uint32{uint32(len(t.ends)), uint32(len(t.text)), uint32(len(t.merges)), uint32(len(t.added)), nfc} {
		b = le.AppendUint32(b, n)
	}
	for _, end := range t.ends {
		b = le.AppendUint32(b, end)
	}
	for _, m := range t.merges {
		b = le.AppendUint32(b, uint32(m.left))
		b = le.AppendUint32(b, uint32(m.right))
		b = le.AppendUint32(b, uint32(m.result))
	}
	for _, a := range t.added {
		special := uint32(0)
		if a.special {
			special = 1
		}
		b = le.AppendUint32(b, uint32(a.id)*2+special)
	}
	b = append(b, t.text...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// decodeCache checks raw as if the checksum proved nothing: whoever can write
// the file can write the checksum too.
func decodeCache(raw []byte, source [sha256.Size]byte) (*Tokenizer, error) {
	if len(raw) < cacheFixed+sha256.Size || string(raw[:8]) != cacheMagic || !bytes.Equal(raw[8:40], source[:]) {
		return nil, fmt.Errorf("cache: other version or source: %w", ErrUnsupported)
	}
	body, sum := raw[:len(raw)-sha256.Size], raw[len(raw)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, fmt.Errorf("cache: checksum differs: %w", ErrCorrupt)
	}
	le := binary.LittleEndian
	var n [5]uint64 // as in the file
	for i := range n {
		n[i] = uint64(le.Uint32(body[40+4*i:]))
	}
	rest := body[cacheFixed:]
	if n[0] > maxTokens || n[3] > n[0] || uint64(len(rest)) != 4*n[0]+n[1]+12*n[2]+4*n[3] {
		return nil, fmt.Errorf("cache: %d bytes for counts %v: %w", len(rest), n, ErrCorrupt)
	}
	next := func() uint32 {
		x := le.Uint32(rest)
		rest = rest[4:]
		return x
	}

	t := &Tokenizer{
		nfc:    n[4] == 1,
		ends:   make([]uint32, n[0]),
		merges: make([]merge, n[2]),
		added:  make([]addedToken, n[3]),
	}
	before := uint32(0)
	for i := range t.ends {
		t.ends[i] = next()
		if t.ends[i] < before {
			return nil, fmt.Errorf("cache: token %d ends before it starts: %w", i, ErrCorrupt)
		}
		before = t.ends[i]
	}
	if uint64(before) != n[1] {
		return nil, fmt.Errorf("cache: tokens end at %d of %d bytes: %w", before, n[1], ErrCorrupt)
	}
	for i := range t.merges {
		left, right, result := next(), next(), next()
		if max(left, right, result) >= uint32(n[0]) {
			return nil, fmt.Errorf("cache: merge %d names no token: %w", i, ErrCorrupt)
		}
		t.merges[i] = merge{int32(left), int32(right), int32(result)}
	}
	for i := range t.added {
		x := next()
		if x/2 >= uint32(n[0]) {
			return nil, fmt.Errorf("cache: added token %d: no id %d: %w", i, x/2, ErrCorrupt)
		}
		t.added[i] = addedToken{int32(x / 2), x&1 == 1}
	}
	t.text = string(rest)

	pairs := make(chan error, 1) // half of the work of opening a tokenizer
	go func() { pairs <- t.pairs.fill(t.merges) }()
	for i, m := range t.merges {
		left, joined := t.bytesOf(m.left), t.bytesOf(m.result)
		if len(joined) < len(left) || joined[:len(left)] != left || joined[len(left):] != t.bytesOf(m.right) {
			return nil, fmt.Errorf("cache: merge %d does not give its result: %w", i, ErrCorrupt)
		}
	}
	for _, a := range t.added {
		if text := t.bytesOf(a.id); text == "" || len(text) > maxAddedBytes || !utf8.ValidString(text) {
			return nil, fmt.Errorf("cache: added token %d: text %.40q: %w", a.id, text, ErrCorrupt)
		}
	}
	if err := t.indexTokens(); err != nil {
		return nil, err
	}
	if err := <-pairs; err != nil {
		return nil, err
	}
	return t, nil
}
