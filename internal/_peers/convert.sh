#!/usr/bin/env bash
# Conversion of an 8B container beside cp, in turns on one disk: seconds until
# the output is on the disk (npack syncs what it writes, cp is followed by sync),
# seconds of CPU. Wants "make build synth-8b-random" and 13 GB of disk.
# usage: internal/_peers/convert.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/../.."
. internal/_peers/turn.sh
npack=bin/npack in=dist/synth-8b-random.bin work=dist/convert
mkdir -p $work
trap 'rm -rf $work' EXIT
$npack to-gguf -q $in $work/in.gguf 2>/dev/null
for _ in $(seq "${1:-3}"); do
	turn cp $in $work/out sh -c "cp $in $work/out"
	turn cp+sync $in $work/out sh -c "cp $in $work/out && sync $work/out"
	turn to-gguf $in $work/out.gguf sh -c "$npack to-gguf -q $in $work/out.gguf 2>/dev/null" # it warns of no tokenizer
	turn from-gguf $work/in.gguf $work/out.bin $npack from-gguf -q $work/in.gguf $work/out.bin
done
