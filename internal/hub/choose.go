package hub

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"npack/pack"
)

// companions are the files, beside the weights, that a model is run with or
// described by. Patterns as [path.Match] has them, for base names.
var companions = []string{
	pack.ManifestName, "SHA256SUMS",
	"config.json", "generation_config.json",
	"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt",
	"chat_template.jinja", "chat_template.json",
	"LICENSE*", "NOTICE*", "MODEL_CARD.md", "README.md",
}

// Choice says which files to fetch.
type Choice struct {
	Patterns []string // for names or base names; none: the model and its companions
	Coded    bool     // rather the coded transport than the container
}

// Choose returns the files that c asks for, in the repository's order but for
// the weights, which come last: by then all else is known to be there. m is
// the repository's manifest, or nil.
func (l *Listing) Choose(c Choice, m *pack.Manifest) ([]File, error) {
	if len(c.Patterns) > 0 {
		return l.matching(c.Patterns)
	}
	weights, err := l.weights(c, m)
	if err != nil {
		return nil, err
	}
	dir := path.Dir(weights.Name)
	var files []File
	for _, f := range l.Files {
		// Of the top directory, and of that which holds the weights.
		if d := path.Dir(f.Name); d != "." && d != dir || f.Name == weights.Name {
			continue
		}
		base := path.Base(f.Name)
		if slices.ContainsFunc(companions, func(p string) bool { ok, _ := path.Match(p, base); return ok }) || f.Name == stem(weights.Name)+".bin.sha256" {
			files = append(files, f)
		}
	}
	return append(files, weights), nil
}

func (l *Listing) matching(patterns []string) (files []File, err error) {
	for _, p := range patterns {
		found := false
		for _, f := range l.Files {
			whole, err := path.Match(p, f.Name)
			if err != nil {
				return nil, fmt.Errorf("bad pattern %q: %w", p, err)
			}
			base, _ := path.Match(p, path.Base(f.Name))
			if !whole && !base {
				continue
			}
			found = true
			if !slices.ContainsFunc(files, func(g File) bool { return g.Name == f.Name }) {
				files = append(files, f)
			}
		}
		if !found {
			return nil, &NoFileError{fmt.Sprintf("no file matches %q", p), l}
		}
	}
	return files, nil
}

// weights returns the file that holds the model: what the manifest names, else
// the only *.tv4z or *.bin of all.
func (l *Listing) weights(c Choice, m *pack.Manifest) (File, error) {
	if m != nil && m.WeightsContainer != nil {
		var names []string
		if t := m.WeightsContainer.CodedTransport; t != nil {
			names = append(names, t.File)
		}
		if names = append(names, m.WeightsContainer.File); !c.Coded {
			slices.Reverse(names)
		}
		for _, name := range names {
			if f, ok := l.Find(name); ok {
				return f, nil
			}
		}
		return File{}, &NoFileError{fmt.Sprintf("%s names %q, which is not there", pack.ManifestName, m.WeightsContainer.File), l}
	}
	kinds := []string{".tv4z", ".bin"}
	if !c.Coded {
		slices.Reverse(kinds)
	}
	for _, ext := range kinds {
		var found []File
		for _, f := range l.Files {
			if strings.EqualFold(path.Ext(f.Name), ext) {
				found = append(found, f)
			}
		}
		if len(found) == 1 {
			return found[0], nil
		}
		if len(found) > 1 {
			return File{}, &NoFileError{fmt.Sprintf("%d files end in %s and no %s says which is the model", len(found), ext, pack.ManifestName), l}
		}
	}
	return File{}, &NoFileError{"no file ends in .tv4z or .bin", l}
}

// Find returns the file of that name.
func (l *Listing) Find(name string) (File, bool) {
	i := slices.IndexFunc(l.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return File{}, false
	}
	return l.Files[i], true
}

// Container is the name of the container that a transport of that name holds,
// if no manifest gives another.
func Container(transport string) string { return stem(transport) + ".bin" }

// IsTransport reports whether a file of that name is a coded transport.
func IsTransport(name string) bool { return strings.EqualFold(path.Ext(name), ".tv4z") }

func stem(name string) string { return strings.TrimSuffix(name, path.Ext(name)) }

// NoFileError says that a repository does not hold what was asked for.
type NoFileError struct {
	Found string
	List  *Listing
}

func (e *NoFileError) Error() string { return "the repository: " + e.Found }

// Unwrap makes it an error of kind [pack.ErrNotModel].
func (e *NoFileError) Unwrap() error { return pack.ErrNotModel }

// Names returns some of the names that are there, for a hint.
func (e *NoFileError) Names() string {
	var names []string
	for _, f := range e.List.Files {
		if len(names) == 12 {
			return strings.Join(names, ", ") + fmt.Sprintf(" and %d more", len(e.List.Files)-12)
		}
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}
