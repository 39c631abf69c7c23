package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	urfave "github.com/urfave/cli/v2"

	"npack/gguf"
	"npack/internal/cli"
	"npack/pack"
)

// ggufReport is what inspect finds in a GGUF file that is not one of the models
// that this program runs: the object that --json prints.
type ggufReport struct {
	File      string       `json:"file"`
	Format    string       `json:"format"`
	Bytes     int64        `json:"bytes"` // of all shards
	Version   uint32       `json:"version"`
	Alignment int          `json:"alignment"`
	Shards    int          `json:"shards"`
	Runs      bool         `json:"runs"` // false
	Why       string       `json:"why"`
	Keys      []ggufKey    `json:"keys"`
	Tensors   []ggufTensor `json:"tensors"`
}

type ggufKey struct {
	Key   string `json:"key"`
	Kind  string `json:"type"`
	Value string `json:"value"` // cut if it is long
}

type ggufTensor struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	ID     uint32   `json:"type_id"`
	Dims   []uint64 `json:"dims"`
	Offset int64    `json:"offset"` // in its file
	Bytes  int64    `json:"bytes"`
}

// inspectForeign lists a GGUF file that cannot be opened as a model, for the
// reason why, if it is well-formed. Everything else gives why itself.
func inspectForeign(c *urfave.Context, path string, why error) error {
	all := c.Bool("occupancy") || c.Bool("digests") || c.Bool("bench") || c.String("plot") != ""
	if !errors.Is(why, pack.ErrUnsupported) || all {
		return why
	}
	f, err := gguf.Open(path)
	if err != nil {
		return why
	}
	defer f.Close()
	reason := why.Error()
	if e := (*pack.Error)(nil); errors.As(why, &e) {
		short := *e
		short.File, short.Offset = "", -1
		reason = short.Error()
	}
	r := &ggufReport{File: path, Format: "gguf", Bytes: f.Length(), Version: f.Version, Alignment: f.Alignment, Shards: max(1, len(f.Shards)), Why: reason,
		Keys: []ggufKey{}, Tensors: []ggufTensor{}}
	for _, kv := range f.Metadata {
		r.Keys = append(r.Keys, ggufKey{kv.Key, kv.Value.Kind.String(), kv.Value.Print()})
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		r.Tensors = append(r.Tensors, ggufTensor{t.Name, t.Type.Name(), uint32(t.Type), t.Dims, t.FileAt, t.Size})
	}
	if c.Bool("json") {
		return cli.JSON(c.App.Writer, r)
	}
	r.print(c.App.Writer)
	return nil
}

func (r *ggufReport) print(w io.Writer) {
	fmt.Fprintf(w, "%q: gguf version %d, %s bytes (%s), %d keys, %d tensors", r.File, r.Version, cli.Group(r.Bytes), cli.Size(r.Bytes), len(r.Keys), len(r.Tensors))
	if r.Shards > 1 {
		fmt.Fprintf(w, " in %d shards", r.Shards)
	}
	fmt.Fprintf(w, "\nnot run by this program: %s\n", cli.OneLine(r.Why))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t)
	for _, k := range r.Keys {
		fmt.Fprintf(t, "%s\t%s\t%s\n", cli.OneLine(k.Key), k.Kind, cli.OneLine(k.Value))
	}
	t.Flush()
	fmt.Fprintln(t, "\ntensor\ttype\tdimensions\tbytes\tat byte")
	for _, x := range r.Tensors {
		fmt.Fprintf(t, "%s\t%s (%d)\t%v\t%s\t%s\n", cli.OneLine(x.Name), x.Type, x.ID, x.Dims, cli.Group(x.Bytes), cli.Group(x.Offset))
	}
	t.Flush()
}
