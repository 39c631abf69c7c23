package pack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// MaxSide bounds a file beside a model, in bytes. The tokenizer.json of Qwen3 has
// 11 MB.
const MaxSide = 64 << 20

// ReadFile reads a file of at most limit bytes, such as those that lie beside a
// model. A larger one is an [*Error] of kind [ErrUnsupported].
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = &Error{Kind: ErrUnsupported, File: path, Offset: -1, Found: "larger than expected of such a file",
			Expected: fmt.Sprintf("at most %d bytes", limit), Hint: "is this the right file?"}
	}
	return b, err
}

// ReadOptional is ReadFile, with nil for a file that is not there.
func ReadOptional(path string, limit int64) ([]byte, error) {
	b, err := ReadFile(path, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
