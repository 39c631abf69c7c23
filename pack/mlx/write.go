package mlx

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"path/filepath"
	"slices"

	"npack/internal/outfile"
	"npack/pack"
	"npack/pack/hf"
	"npack/pack/native"
	"npack/pack/rows"
	"npack/pack/safetensors"
	"npack/ternary"
)

// moduleFile is the program that mlx-lm runs for profile planes (§4).
const moduleFile = "trit_qwen3.py"

//go:embed trit_qwen3.py
var moduleText []byte

// Result says what was written.
type Result struct {
	Files     int    // of weights
	SHA256    string // of the container that the model makes
	Tokenizer bool   // a tokenizer.json was there to copy
}

// Write writes the pack into d (§1).
func (p *Plan) Write(ctx context.Context, d *outfile.Dir) (*Result, error) {
	side, err := hf.CopySide(d, p.o.Side, p.m.Vocab)
	if err != nil {
		return nil, err
	}
	container, err := native.Digest(ctx, p.m)
	if err != nil {
		return nil, err
	}
	config, err := p.config(side)
	if err != nil {
		return nil, err
	}
	if err := d.WriteFile("config.json", config); err != nil {
		return nil, err
	}
	if p.Profile == Planes {
		if err := d.WriteFile(moduleFile, moduleText); err != nil {
			return nil, err
		}
	}
	x := &exporter{Plan: p, ctx: ctx}
	if err := safetensors.WriteSet(d, p.files, x.write); err != nil {
		return nil, err
	}
	if p.Exact {
		if err := p.writeRows(ctx, d, container); err != nil {
			return nil, err
		}
	}
	if err := d.WriteFile("README.md", p.readme()); err != nil {
		return nil, err
	}
	r := &Result{Files: len(p.files), SHA256: container.SHA256, Tokenizer: side.Tokenizer}
	return r, p.writeRecord(ctx, d, container)
}

func (p *Plan) writeRows(ctx context.Context, d *outfile.Dir, container pack.Pin) error {
	w, err := d.Create(rows.Name)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := rows.Write(ctx, w, p.m, container.SHA256, container.Bytes); err != nil {
		return err
	}
	return w.Commit()
}

// writeRecord writes pack.json, which pins the files of weights as they lie on
// disk.
func (p *Plan) writeRecord(ctx context.Context, d *outfile.Dir, container pack.Pin) error {
	r := record{Format: packFormat, Version: packVersion, Profile: p.Profile, GroupSize: p.group, Source: sourceRecord{p.o.Source, container},
		Exact: p.Exact, MaxRelWeightError: p.LinearError, MaxTableErrorSteps: p.TableError,
		Tensors: map[string]tensorRecord{}, Files: map[string]pack.Pin{}, Tool: "npack", ToolVersion: p.o.Version}
	for i := range p.modules {
		k := &p.modules[i]
		bits := k.bits
		if bits == 0 {
			bits = 32
		}
		r.Tensors[k.name] = tensorRecord{Bits: bits, GroupSize: k.group, Exact: k.err == 0}
	}
	for i := range p.files {
		name := safetensors.ShardName(i, len(p.files))
		pin, err := pack.HashFile(ctx, filepath.Join(d.TempName(), name), nil)
		if err != nil {
			return err
		}
		r.Files[name] = pin
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return d.WriteFile(PackName, append(b, '\n'))
}

// exporter writes the data of all modules.
type exporter struct {
	*Plan
	ctx  context.Context
	w    *bufio.Writer
	done int64
	row  []byte // of the file
	q    []byte // codes of a row
	p, n []byte // planes of a row
}

func (x *exporter) write(w io.Writer) error {
	x.w = bufio.NewWriterSize(w, 1<<20)
	for i := range x.modules {
		if err := x.module(&x.modules[i]); err != nil {
			return err
		}
	}
	return x.w.Flush()
}

// put writes b and tells the progress.
func (x *exporter) put(b []byte) error {
	if err := x.ctx.Err(); err != nil {
		return err
	}
	x.done += int64(len(b))
	if x.o.Progress != nil {
		x.o.Progress(x.done, x.Bytes)
	}
	_, err := x.w.Write(b)
	return err
}

func (x *exporter) floats(v ...float32) error {
	b := x.row[:0]
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	x.row = b
	return x.put(b)
}

// module writes the tensors of a module. Scales are kept until all rows have
// been written.
func (x *exporter) module(k *module) error {
	if k.t.Vector != nil {
		return x.floats(k.t.Vector...)
	}
	var steps [2][]float32 // of each row; the second of planes alone
	values := make([]float32, k.t.Shape().Cols)
	var part ternary.Part
	for r0, r1 := range k.t.Chunks() {
		t, err := x.m.ReadRows(&part, k.t, r0, r1)
		if err != nil {
			return err
		}
		for r := range r1 - r0 {
			switch {
			case k.bits == 0:
				t.Values(values, r)
				err = x.floats(values...)
			case t.Int8 != nil:
				steps[0] = append(steps[0], t.Int8.Scale[r])
				err = x.table(t.Int8, r)
			case x.planes(k):
				steps[0], steps[1] = append(steps[0], t.Ternary.SLo[r]), append(steps[1], t.Ternary.SHi[r])
				err = x.twoPlanes(t.Ternary, r)
			default:
				var step float32
				step, err = x.affine(t.Ternary, r, k.bits)
				steps[0] = append(steps[0], step)
			}
			if err != nil {
				return err
			}
		}
		x.m.ReleaseTensor(t)
	}
	if k.bits == 0 {
		return nil
	}
	factor := -float32(zero(k.bits))
	for _, by := range []float32{1, factor} {
		for r := range steps[0] {
			x.row = x.row[:0]
			for _, s := range steps {
				if s == nil {
					continue
				}
				for range k.t.Shape().Cols / k.group {
					x.row = binary.LittleEndian.AppendUint32(x.row, math.Float32bits(by*s[r]))
				}
			}
			if err := x.put(x.row); err != nil {
				return err
			}
		}
	}
	return nil
}

// table writes a row of int8 values.
func (x *exporter) table(t *ternary.Int8Matrix, r int) error {
	x.row = x.row[:0]
	for _, v := range t.Row(r) {
		x.row = append(x.row, byte(v)^0x80)
	}
	return x.put(x.row)
}

// twoPlanes writes a row of low and then of high weights, two bits each.
func (x *exporter) twoPlanes(w *ternary.Matrix, r int) error {
	at, n := r*w.Stride, w.Cols/8
	bp, bn, br := w.BP[at:at+n], w.BN[at:at+n], w.BR[at:at+n]
	x.p, x.n, x.row = grow(x.p, n), grow(x.n, n), grow(x.row, 4*n)
	for half := range 2 {
		for i, b := range br {
			if half == 0 {
				b = ^b
			}
			x.p[i], x.n[i] = bp[i]&b, bn[i]&b
		}
		encodeTrits(x.row[2*n*half:2*n*(half+1)], x.p, x.n)
	}
	return x.put(x.row)
}

// affine writes a row as multiples of a step, which it returns.
func (x *exporter) affine(w *ternary.Matrix, r, bits int) (float32, error) {
	usesLo, usesHi := uses(w, r)
	g := nearestGrid(w.SLo[r], w.SHi[r], usesLo, usesHi, bits)
	z := zero(bits)
	// by bp + 2 bn + 4 br
	code := [8]byte{byte(z), byte(z + g.lo), byte(z - g.lo), byte(z), byte(z), byte(z + g.hi), byte(z - g.hi), byte(z)}
	x.q, x.row = grow(x.q, w.Cols), grow(x.row, w.Cols*bits/8)
	at := r * w.Stride
	for i := range x.q {
		b, s := at+i/8, i%8
		x.q[i] = code[w.BP[b]>>s&1|w.BN[b]>>s&1<<1|w.BR[b]>>s&1<<2]
	}
	packCodes(x.row, x.q, bits)
	return g.step, x.put(x.row)
}

func grow(b []byte, n int) []byte { return slices.Grow(b[:0], n)[:n] }
