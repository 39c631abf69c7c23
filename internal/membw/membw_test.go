package membw

import (
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	for _, threads := range []int{1, 3} {
		r := Read(threads, 1<<20, time.Millisecond)
		if r.Threads != threads || r.Bytes > 1<<20 || r.Bytes < 1<<20-threads || r.BytesPerSecond <= 0 {
			t.Errorf("%+v", r)
		}
	}
}
