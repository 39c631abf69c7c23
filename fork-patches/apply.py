#!/usr/bin/env python3
"""Add the FV5 and FV5B tensor types to a llama.cpp source tree.

usage: apply.py [--check] LLAMA_CPP_DIR

Reads edits/*.edit beside this script in name order, then copies files/. Nothing
is written unless every anchor of every edit is found exactly once, so a tree is
either patched whole or left as it was. --check finds the anchors and stops.

An edit file is a list of

    file PATH               the file that the following steps change
    in REGEX                look only behind the one line that REGEX matches
    after|before REGEX      add the lines below behind or before the anchor line
    replace REGEX           put the lines below in the anchor line's place; \\1 is
                            the first group
    |TEXT                   one line of text

The anchor is the first match behind `in`, or without `in` the only match of the
file. `#` begins a comment.
"""
import pathlib
import re
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
STAMP = "ggml/src/ggml-fv5.h"  # there once a tree is patched


class Failure(Exception):
    pass


def steps(path):
    """Yields (place, file, within, verb, regex, lines) for every step of an edit file."""
    file = within = step = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        place = f"{path.name}:{number}"
        if line.startswith("|"):
            if step is None:
                raise Failure(f"{place}: text without an anchor")
            step[-1].append(line[1:])
            continue
        if step is not None:
            yield step
            step = None
        if not line.strip() or line.startswith("#"):
            continue
        verb, _, rest = line.partition(" ")
        if verb == "file":
            file, within = rest.strip(), None
        elif verb == "in":
            within = rest.strip()
        elif verb in ("after", "before", "replace") and file:
            step = (place, file, within, verb, rest.strip(), [])
            within = None
        else:
            raise Failure(f"{place}: unknown step {verb!r}")
    if step is not None:
        yield step


def find(place, file, lines, within, regex):
    """Returns the index of the anchor line."""
    start = 0
    if within:
        hits = [i for i, line in enumerate(lines) if re.search(within, line)]
        if len(hits) != 1:
            raise Failure(f"{place}: {file}: {len(hits)} lines match /{within}/, want 1")
        start = hits[0] + 1
    hits = [i for i in range(start, len(lines)) if re.search(regex, lines[i])]
    if not hits or (len(hits) > 1 and not within):
        raise Failure(f"{place}: {file}: {len(hits)} lines match /{regex}/, want 1")
    return hits[0]


def patched(tree):
    """Returns {file: new text} with all edits done in memory."""
    texts = {}
    for edit in sorted((HERE / "edits").glob("*.edit")):
        for place, file, within, verb, regex, added in steps(edit):
            if file not in texts:
                try:
                    texts[file] = (tree / file).read_text().split("\n")
                except FileNotFoundError:
                    raise Failure(f"{place}: {file}: no such file in {tree}") from None
            lines = texts[file]
            at = find(place, file, lines, within, regex)
            if verb == "replace":
                match = re.search(regex, lines[at])
                lines[at:at + 1] = [match.expand(line) for line in added]
            else:
                lines[at + (verb == "after"):at + (verb == "after")] = added
    return texts


def main(args):
    check = "--check" in args
    args = [a for a in args if a != "--check"]
    if len(args) != 1 or args[0].startswith("-"):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    tree = pathlib.Path(args[0])
    try:
        if (tree / STAMP).exists():
            raise Failure(f"{tree} has {STAMP}: already patched")
        texts = patched(tree)
    except Failure as failure:
        print(f"apply.py: error: {failure}", file=sys.stderr)
        print("apply.py: hint: README.md names the commit that the anchors were made for; "
              "the tree was not changed", file=sys.stderr)
        return 1
    if not check:
        for file, lines in texts.items():
            (tree / file).write_text("\n".join(lines))
        shutil.copytree(HERE / "files", tree, dirs_exist_ok=True)
    print(f"{len(texts)} files {'can be' if check else 'were'} changed in {tree}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
