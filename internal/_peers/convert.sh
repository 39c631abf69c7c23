#!/usr/bin/env bash
# Conversion of an 8B container beside cp, in turns on one disk: seconds until
# the output is on the disk (npack syncs what it writes, cp is followed by sync),
# seconds of CPU. Inputs are read once before, so that they are in memory where
# they fit. Wants "make build synth-8b-random" and 13 GB of disk.
# usage: internal/_peers/convert.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/../.."
npack=bin/npack in=dist/synth-8b-random.bin work=dist/convert
mkdir -p $work
trap 'rm -rf $work' EXIT
TIMEFORMAT='%R s, CPU %U + %S s'
$npack to-gguf -q $in $work/in.gguf 2>/dev/null
turn() { # NAME INPUT OUTPUT COMMAND...
	local name=$1 input=$2 output=$3
	shift 3
	cat "$input" >/dev/null
	sync
	echo -n "$name: $(stat -c %s "$input") bytes, load $(cut -d' ' -f1 /proc/loadavg): "
	time "$@"
	rm -f "$output"
}
for _ in $(seq "${1:-3}"); do
	turn cp $in $work/out sh -c "cp $in $work/out"
	turn cp+sync $in $work/out sh -c "cp $in $work/out && sync $work/out"
	turn to-gguf $in $work/out.gguf sh -c "$npack to-gguf -q $in $work/out.gguf 2>/dev/null" # it warns of no tokenizer
	turn from-gguf $work/in.gguf $work/out.bin $npack from-gguf -q $work/in.gguf $work/out.bin
done
