// Package cuda is a [gpu.Device] on NVIDIA's driver, which it loads when a card
// is asked for: no cgo, no toolkit. It is built with the tag gpu on Linux and
// Windows (amd64, arm64); elsewhere [Cards] and [Open] say why there is none.
// A program built with the tag is linked to glibc, as the driver is.
//
// # Threads
//
// The driver keeps the context of a card per thread. A [Device] owns one thread
// that makes all of its calls. A call from outside costs a hop there and back,
// some microseconds; what runs within [Device.Do] is there already, so a pass is
// one hop, not one a launch.
//
// # Memory
//
// Uploads go through two halves of pinned memory: a copy to the card reads one
// while the next bytes are put into the other. Nothing waits until a half is used
// again, and a download, which waits for all, makes both free.
//
// # What is checked before the driver sees it
//
// A fault within the driver ends the process and a bad address ends the context.
// So every launch is checked here: the kernel's name, the number of arguments,
// pointers against the sizes of their buffers, grids against the card's limits,
// and the packed arguments against the parameters that the PTX declares.
package cuda

import (
	"errors"
	"fmt"
	"strings"
)

// MinCapability is the least compute capability that the kernels are compiled
// for: Volta.
const MinCapability = 70

// Any is the card that is taken where there is only one.
const Any = -1

// ErrUnavailable is wrapped where no card can be used, for a reason that is not
// one of this program's: no driver, no card, a card too old.
var ErrUnavailable = errors.New("no usable NVIDIA card")

// unavailable is an error of that kind which says the reason alone.
type unavailable string

func unavailablef(format string, args ...any) error { return unavailable(fmt.Sprintf(format, args...)) }
func (u unavailable) Error() string                 { return string(u) }
func (u unavailable) Unwrap() error                 { return ErrUnavailable }

// Card is what the driver says of a card before anything is started on it.
type Card struct {
	Index      int    `json:"index"` // as --device and CUDA_VISIBLE_DEVICES count
	Name       string `json:"name"`
	Bus        string `json:"bus"`    // PCI address
	Driver     string `json:"driver"` // newest CUDA version that the driver knows: "12.4"
	Capability int    `json:"capability"`
	Processors int    `json:"processors"`
	Total      int64  `json:"memory"` // bytes

	BusWidth    int `json:"bus_width_bits"`   // of its memory
	MemoryClock int `json:"memory_clock_khz"` // 0: the driver does not say
}

// Bandwidth is what the card's memory can deliver by its clock and width, two
// transfers a clock, in bytes a second; 0 if unknown.
func (c *Card) Bandwidth() float64 {
	return 2 * float64(c.MemoryClock) * 1e3 * float64(c.BusWidth) / 8
}

// Compiled is what the driver's compiler made of a kernel.
type Compiled struct {
	Registers int `json:"registers"` // a thread
	Local     int `json:"local"`     // bytes a thread that did not fit into registers
	Shared    int `json:"shared"`    // bytes a block
}

// String is "0 NVIDIA L4 (sm_89, 23.6 GB, 0000:01:00.0)".
func (c *Card) String() string {
	return fmt.Sprintf("%d %s (sm_%d, %.1f GB, %s)", c.Index, c.Name, c.Capability, float64(c.Total)/1e9, c.Bus)
}

// ChoiceError says that there are several cards, none of which was chosen, or
// that the one chosen is not there.
type ChoiceError struct {
	Asked int // or Any
	Cards []Card
}

func (e *ChoiceError) Error() string {
	var list []string
	for i := range e.Cards {
		list = append(list, e.Cards[i].String())
	}
	what := fmt.Sprintf("there are %d cards", len(e.Cards))
	if e.Asked != Any {
		what = fmt.Sprintf("there is no card %d", e.Asked)
	}
	return what + ": " + strings.Join(list, ", ")
}

// choose returns the card that is asked for, or the only one.
func choose(cards []Card, device int) (*Card, error) {
	switch {
	case device == Any && len(cards) == 1:
		device = 0
	case device < 0 || device >= len(cards):
		return nil, &ChoiceError{device, cards}
	}
	c := &cards[device]
	if c.Capability < MinCapability {
		return nil, unavailablef("%s has compute capability %d.%d, the kernels need %d.%d or newer", c.Name, c.Capability/10, c.Capability%10,
			MinCapability/10, MinCapability%10)
	}
	return c, nil
}
