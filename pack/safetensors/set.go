package safetensors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"npack/pack"
)

// Names of files in a repository (§4).
const (
	Extension   = ".safetensors"
	IndexSuffix = ".safetensors.index.json"
	ModelName   = "model" // of a model's files, without their endings
)

var shardName = regexp.MustCompile(`^(.+)-([0-9]{5})-of-([0-9]{5})\.safetensors$`)

// ShardName is the name of file i, counted from 0, of n files of a model.
func ShardName(i, n int) string {
	if n == 1 {
		return ModelName + Extension
	}
	return fmt.Sprintf("%s-%05d-of-%05d%s", ModelName, i+1, n, Extension)
}

// ShardSet returns what the names of all files of a set have in common, or "" if
// name is not that of one.
func ShardSet(name string) string {
	if m := shardName.FindStringSubmatch(filepath.Base(name)); m != nil {
		return m[1] + "-of-" + m[3] + Extension
	}
	return ""
}

// weightMap is an index: which tensor is in which file.
type weightMap struct {
	path  string
	files map[string]string // by tensor
}

// set returns the files that path means, and the index if there is one.
func set(path string) ([]string, *weightMap, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if st.IsDir() {
		if path, err = inDirectory(path); err != nil {
			return nil, nil, err
		}
	}
	if strings.HasSuffix(path, ".index.json") {
		return readIndex(path)
	}
	m := shardName.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return []string{path}, nil, nil
	}
	n, _ := strconv.Atoi(m[3]) // five digits
	if i, _ := strconv.Atoi(m[2]); i < 1 || i > n {
		return nil, nil, &pack.Error{Kind: pack.ErrCorrupt, File: path, Offset: -1, Found: fmt.Sprintf("the name says file %d of %d", i, n), Expected: fmt.Sprintf("1 to %d", n),
			Hint: "give the file the name that it was published under"}
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%05d-of-%s%s", m[1], i+1, m[3], Extension)
	}
	paths, err := present(path, filepath.Dir(path), names)
	return paths, nil, err
}

// present returns the paths of names in dir, or an error that names those that
// are missing.
func present(file, dir string, names []string) ([]string, error) {
	var paths, missing []string
	for _, name := range names {
		p := filepath.Join(dir, name)
		if _, err := os.Stat(p); err != nil {
			missing = append(missing, name)
		}
		paths = append(paths, p)
	}
	if len(missing) == 0 {
		return paths, nil
	}
	const listed = 8
	list := strings.Join(missing[:min(listed, len(missing))], ", ")
	if len(missing) > listed {
		list += fmt.Sprintf(" and %d more", len(missing)-listed)
	}
	return nil, &pack.Error{Kind: pack.ErrTruncated, File: file, Offset: -1, Found: fmt.Sprintf("%d of %d files of the set are missing: %s", len(missing), len(names), list),
		Expected: "all in one directory", Hint: "fetch the missing files"}
}

// inDirectory finds the index, the model's file, or the only file or set in a
// directory.
func inDirectory(dir string) (string, error) {
	for _, name := range []string{ModelName + IndexSuffix, ModelName + Extension} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var found []string
	sets := map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		if set := ShardSet(name); filepath.Ext(name) == Extension && !strings.HasPrefix(name, ".") && !sets[set] {
			sets[set] = set != ""
			found = append(found, name)
		}
	}
	switch len(found) {
	case 1:
		return filepath.Join(dir, found[0]), nil
	case 0:
		return "", &pack.Error{Kind: pack.ErrNotModel, File: dir, Offset: -1, Found: "no *.safetensors in the directory", Expected: "one, or a set of them with its index"}
	}
	return "", &pack.Error{Kind: pack.ErrNotModel, File: dir, Offset: -1, Found: fmt.Sprintf("%d safetensors files: %s", len(found), strings.Join(found[:min(8, len(found))], ", ")),
		Expected: "one, or one named " + ModelName + Extension, Hint: "name the file itself"}
}

// readIndex reads an index and returns the files that it names, sorted.
func readIndex(path string) ([]string, *weightMap, error) {
	b, err := pack.ReadFile(path, maxHeader)
	if err != nil {
		return nil, nil, err
	}
	fail := func(place, found, expected string) error {
		return &pack.Error{Kind: pack.ErrCorrupt, File: path, Place: place, Offset: -1, Found: found, Expected: expected, Hint: hintDamaged}
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return nil, nil, fail("", "the JSON does not say which file a tensor is in: "+err.Error(), `an object "weight_map" of strings`)
	}
	if len(index.WeightMap) == 0 || len(index.WeightMap) > maxSetTensors {
		return nil, nil, fail("weight_map", fmt.Sprintf("%d tensors", len(index.WeightMap)), fmt.Sprintf("1 to %d", maxSetTensors))
	}
	var names []string
	seen := map[string]bool{}
	for tensor, name := range index.WeightMap {
		if !filepath.IsLocal(name) || name != filepath.Base(name) || strings.ContainsAny(name, `\:`) {
			return nil, nil, fail(place(tensor), fmt.Sprintf("the file is %q", name), "the name of one beside the index")
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	slices.Sort(names)
	paths, err := present(path, filepath.Dir(path), names)
	return paths, &weightMap{path, index.WeightMap}, err
}

// check reports a tensor of the index that is not in the file where it should
// be. Files may hold tensors that the index leaves out.
func (m *weightMap) check(f *File) error {
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		found := "no file of the set has the tensor"
		t := f.Tensor(name)
		if t != nil {
			if filepath.Base(t.File()) == m.files[name] {
				continue
			}
			found = fmt.Sprintf("the tensor is in %q", filepath.Base(t.File()))
		}
		return &pack.Error{Kind: pack.ErrCorrupt, File: m.path, Place: place(name), Offset: -1, Found: found, Expected: fmt.Sprintf("in %q, by the index", m.files[name]), Hint: hintDamaged}
	}
	return nil
}

// EncodeIndex returns the index of a set: its files in the order of ShardName.
func EncodeIndex(files []Header) []byte {
	var b bytes.Buffer
	var total int64
	for i := range files {
		for j := range files[i].Tensors {
			total += files[i].Tensors[j].Size
		}
	}
	fmt.Fprintf(&b, "{\n  \"metadata\": {\n    \"total_size\": %d\n  },\n  \"weight_map\": {", total)
	sep := "\n"
	for i := range files {
		for j := range files[i].Tensors {
			fmt.Fprintf(&b, "%s    %s: %s", sep, quote(files[i].Tensors[j].Name), quote(ShardName(i, len(files))))
			sep = ",\n"
		}
	}
	b.WriteString("\n  }\n}\n")
	return b.Bytes()
}
