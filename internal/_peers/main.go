// Command peers packs and unpacks standard input with what Go programs have at
// hand, each at its strongest, for the table of docs/transport.md:
//
//	peers gzip|lzw|zstd [-d] < in > out
//
// It is a module of its own: npack does not depend on these.
package main

import (
	"compress/gzip"
	"compress/lzw"
	"io"
	"log"
	"os"

	"github.com/klauspost/compress/zstd"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 || len(os.Args) > 3 {
		log.Fatal("usage: peers gzip|lzw|zstd [-d] < in > out")
	}
	var err error
	if len(os.Args) == 3 {
		err = unpack(os.Args[1])
	} else {
		err = packed(os.Args[1])
	}
	if err != nil {
		log.Fatal(err)
	}
}

func packed(name string) error {
	var w io.WriteCloser
	var err error
	switch name {
	case "gzip":
		w, err = gzip.NewWriterLevel(os.Stdout, gzip.BestCompression)
	case "lzw":
		w = lzw.NewWriter(os.Stdout, lzw.LSB, 8)
	case "zstd":
		w, err = zstd.NewWriter(os.Stdout, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	}
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, os.Stdin); err != nil {
		return err
	}
	return w.Close()
}

func unpack(name string) error {
	var r io.Reader
	var err error
	switch name {
	case "gzip":
		r, err = gzip.NewReader(os.Stdin)
	case "lzw":
		r = lzw.NewReader(os.Stdin, lzw.LSB, 8)
	case "zstd":
		r, err = zstd.NewReader(os.Stdin, zstd.WithDecoderConcurrency(1))
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, r)
	return err
}
