//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"npack/cuda"
	"npack/gpu"
	"npack/runtime/backend"
	"npack/ternary/ternarytest"
)

// use loads a small model and makes two tokens of it, in a recording too.
func use(b *gpu.Backend) (ids []int32, err error) {
	m := ternarytest.Model(ternarytest.All()[0].Spec)
	in, err := b.Load(context.Background(), m, backend.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	seq, err := in.NewSequence(300)
	if err != nil {
		return nil, err
	}
	defer seq.Close()
	best := make([]backend.Ranked, 1)
	run := []backend.Run{{Seq: seq, Tokens: []int32{1, 2, 3}, Want: []int{2}}}
	for range 4 {
		if err := in.(backend.Ranker).ForwardRanked(context.Background(), run, 1, best); err != nil {
			return nil, err
		}
		ids = append(ids, best[0].ID)
		run[0].Tokens, run[0].Want = []int32{best[0].ID}, []int{0}
	}
	return ids, nil
}

// TestFailures lets the driver fail at each place in turn. The error has its kind,
// nothing is left on the card, and where the card is not lost it goes on as before.
func TestFailures(t *testing.T) {
	for setting, kind := range map[string]error{"fail_alloc": gpu.ErrMemory, "fail_launch": nil} {
		t.Run(setting, func(t *testing.T) {
			f, b := cuda.NeedFake(t), backendOn(t)
			want, err := use(b)
			if err != nil {
				t.Fatal(err)
			}
			held := f.Get("held")
			for n := 1; ; n += 1 + n/4 { // each of the first, some of the many that follow
				f.Set(t, setting, n)
				ids, err := use(b)
				left := f.Get(setting)
				f.Set(t, setting, 0)
				if now := f.Get("held"); now != held {
					t.Fatalf("the %dth: %d bytes more on the card", n, now-held)
				}
				if err == nil {
					if left == 0 || !slices.Equal(ids, want) || n < 10 {
						t.Errorf("the %dth: tokens %v, want %v; the failure is %d away", n, ids, want, left)
					}
					break
				}
				var driver *cuda.Error
				if !errors.As(err, &driver) || kind != nil && !errors.Is(err, kind) {
					t.Errorf("the %dth: %v", n, err)
				}
				if ids, err := use(b); err != nil || !slices.Equal(ids, want) {
					t.Fatalf("the %dth: afterwards %v, %v, want %v", n, ids, err, want)
				}
			}
		})
	}
	for _, c := range []struct {
		setting string
		n       int
	}{{"fail_run", 1}, {"fail_run", 60}, {"fail_call", 1}, {"fail_call", 15}, {"fail_call", 60}} {
		t.Run(fmt.Sprint(c.setting, c.n), func(t *testing.T) {
			f, b := cuda.NeedFake(t), backendOn(t)
			f.Set(t, c.setting, c.n)
			_, err := use(b)
			f.Set(t, c.setting, 0)
			if !errors.Is(err, gpu.ErrLost) {
				t.Error(err)
			}
			if _, err := use(b); !errors.Is(err, gpu.ErrLost) {
				t.Errorf("afterwards %v", err)
			}
		})
	}
}
