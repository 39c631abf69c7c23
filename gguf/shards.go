package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Keys of a shard (§6).
const (
	splitCount   = "split.count"
	splitNo      = "split.no"
	splitTensors = "split.tensors.count"
)

// shardName is how files of a set are named: names count from 1.
var shardName = regexp.MustCompile(`^(.*)-([0-9]{5})-of-([0-9]{5})\.gguf$`)

// ShardSet returns what the names of a set of shards have in common, or "" if
// name is not one of such a set.
func ShardSet(name string) string {
	m := shardName.FindStringSubmatch(name)
	if m == nil {
		return ""
	}
	return m[1] + "-of-" + m[3]
}

// openShards returns f itself if it is a whole file, otherwise the set that it
// belongs to, which then owns f.
func (f *File) openShards() (*File, error) {
	count, err := f.splitKey(splitCount)
	if err != nil || count <= 1 {
		return f, err
	}
	no, err := f.splitKey(splitNo)
	if err != nil {
		return nil, err
	}
	dir, base := filepath.Split(f.name)
	m := shardName.FindStringSubmatch(base)
	name := func(i uint64) string { return fmt.Sprintf("%s%s-%05d-of-%05d.gguf", dir, m[1], i+1, count) }
	if m == nil || number(m[2]) != no+1 || number(m[3]) != count {
		return nil, &Error{Kind: ErrUnsupported, File: f.name, Place: "key " + strconv.Quote(splitNo), Offset: -1,
			Found:    fmt.Sprintf("this is shard %d of %d, but its name says something else", no+1, count),
			Expected: fmt.Sprintf("a name that ends in -%05d-of-%05d.gguf", no+1, count), Hint: "give the files of the set back their names"}
	}
	set := &File{name: f.name}
	var missing []string
	for i := range count {
		s := f
		if i != no {
			if s, err = openOne(name(i)); errors.Is(err, fs.ErrNotExist) {
				missing = append(missing, filepath.Base(name(i)))
				continue
			}
			if err != nil {
				set.closeBut(f)
				return nil, err
			}
		}
		set.Shards = append(set.Shards, s)
		if err := s.checkShard(i, count); err != nil {
			set.closeBut(f)
			return nil, err
		}
	}
	if len(missing) > 0 {
		set.closeBut(f)
		const most = 8
		list := strings.Join(missing[:min(most, len(missing))], ", ")
		if len(missing) > most {
			list += fmt.Sprintf(" and %d more", len(missing)-most)
		}
		return nil, &Error{Kind: ErrTruncated, File: f.name, Offset: -1, Found: fmt.Sprintf("this is shard %d of %d; missing: %s", no+1, count, list),
			Expected: "all files of the set in one directory", Hint: "fetch the missing files"}
	}
	if err := set.join(); err != nil {
		set.closeBut(f)
		return nil, err
	}
	return set, nil
}

// closeBut closes all shards but f, whose opener closes it.
func (set *File) closeBut(f *File) {
	for _, s := range set.Shards {
		if s != f {
			s.Close()
		}
	}
}

// checkShard checks that s is number no of count.
func (s *File) checkShard(no, count uint64) error {
	for _, k := range []struct {
		key  string
		want uint64
	}{{splitCount, count}, {splitNo, no}} {
		got, err := s.splitKey(k.key)
		if err != nil {
			return err
		}
		if got != k.want {
			return &Error{Kind: ErrCorrupt, File: s.name, Place: "key " + strconv.Quote(k.key), Offset: -1,
				Found: fmt.Sprintf("the value is %d", got), Expected: fmt.Sprintf("%d, by the file's name", k.want), Hint: "the files are of different sets, or were renamed"}
		}
	}
	return nil
}

// join makes the set's header and table out of its shards'.
func (set *File) join() error {
	first := set.Shards[0]
	set.Header, set.dataStart = first.Header, first.dataStart
	set.Tensors = nil
	in := map[string]string{}
	for _, s := range set.Shards {
		for i := range s.Tensors {
			t := &s.Tensors[i]
			if other, twice := in[t.Name]; twice {
				return &Error{Kind: ErrCorrupt, File: s.name, Place: fmt.Sprintf("tensor %q", t.Name), Offset: -1,
					Found: fmt.Sprintf("the tensor is in %q too", other), Expected: "each tensor once", Hint: hintDamaged}
			}
			in[t.Name] = s.name
		}
		set.Tensors = append(set.Tensors, s.Tensors...)
	}
	want, err := first.splitKey(splitTensors)
	if err != nil {
		return err
	}
	if want != uint64(len(set.Tensors)) {
		return &Error{Kind: ErrCorrupt, File: first.name, Place: "key " + strconv.Quote(splitTensors), Offset: -1,
			Found: fmt.Sprintf("the value is %d", want), Expected: fmt.Sprintf("%d, the tensors of all %d shards", len(set.Tensors), len(set.Shards)),
			Hint: "the files are of different sets, or one is damaged"}
	}
	return nil
}

// splitKey returns a number of the shard's metadata, 0 if there is none.
func (f *File) splitKey(key string) (uint64, error) {
	v, ok := f.Value(key)
	if !ok {
		return 0, nil
	}
	n, ok := v.Uint()
	if !ok || n > 99999 { // names have five digits
		return 0, &Error{Kind: ErrCorrupt, File: f.name, Place: "key " + strconv.Quote(key), Offset: -1,
			Found: "the value is " + v.Print(), Expected: "a number from 0 to 99999", Hint: hintDamaged}
	}
	return n, nil
}

// number is the value of five digits.
func number(digits string) uint64 {
	n, _ := strconv.ParseUint(digits, 10, 64)
	return n
}
