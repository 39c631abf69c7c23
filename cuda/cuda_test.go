package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"npack/gpu"
)

func TestChoose(t *testing.T) {
	one := []Card{{Name: "a", Capability: 89, Total: 8e9, Bus: "0000:01:00.0"}}
	two := append(one, Card{Index: 1, Name: "b", Capability: 61})
	for _, c := range []struct {
		cards  []Card
		device int
		want   string // name, or the error
	}{
		{one, Any, "a"}, {one, 0, "a"}, {two, 0, "a"},
		{one, 1, "there is no card 1: 0 a (sm_89, 8.0 GB, 0000:01:00.0)"},
		{two, Any, "there are 2 cards: 0 a (sm_89, 8.0 GB, 0000:01:00.0), 1 b"},
		{two, 2, "there is no card 2"}, {two, -2, "there is no card -2"},
		{two, 1, "b has compute capability 6.1, the kernels need 7.0 or newer"},
	} {
		card, err := choose(c.cards, c.device)
		got := fmt.Sprint(err)
		if err == nil {
			got = card.Name
		}
		var several *ChoiceError
		if !strings.HasPrefix(got, c.want) || errors.As(err, &several) != strings.HasPrefix(got, "there ") {
			t.Errorf("card %d of %d: %s, want %s", c.device, len(c.cards), got, c.want)
		}
	}
}

// Every code says its name and number, and its kind is one that callers know.
func TestResults(t *testing.T) {
	for i, r := range results {
		if i > 0 && r.code <= results[i-1].code {
			t.Errorf("code %d behind %d", r.code, results[i-1].code)
		}
		err := error(&Error{Op: "trying", Code: r.code})
		if want := fmt.Sprintf("trying: CUDA_ERROR_%s (%d)", r.name, r.code); err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		if r.kind != nil && (!errors.Is(err, r.kind) || !slices.Contains([]error{gpu.ErrMemory, gpu.ErrLost, ErrUnavailable}, r.kind)) {
			t.Errorf("%s: its kind is %v", err, r.kind)
		}
	}
	if got := (&Error{Op: "trying", Code: 4242}).Error(); got != "trying: CUDA error 4242" {
		t.Error(got)
	}
	if err := (&Error{Op: "compiling", Code: 218, Log: "line 3"}).Error(); !strings.HasSuffix(err, "(218): line 3") {
		t.Error(err)
	}
}
