#!/usr/bin/env bash
# npack import of a BitNet 2B checkpoint, as trained and packed, beside cp of the
# same file, in turns on one disk: seconds until the output is on the disk (npack
# syncs what it writes), seconds of CPU; then the sizes of what import makes and its
# peak memory. Wants "make build synth-bitnet-2b synth-bitnet-2b-packed", GNU time
# and 11 GB of disk.
# usage: internal/_peers/import.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/../.."
. internal/_peers/turn.sh
npack=bin/npack work=dist/import
mkdir -p $work
trap 'rm -rf $work' EXIT
for form in trained packed; do
	in=dist/bitnet-2b-$form weights=dist/bitnet-2b-$form/model.safetensors out=$work/out
	for _ in $(seq "${1:-3}"); do
		turn "$form: cp" $weights $out cp $weights $out
		turn "$form: cp+sync" $weights $out sh -c "cp $weights $out && sync $out"
		turn "$form: import" $weights $out.bin $npack import -q $in $out.bin
	done
	/usr/bin/time -f "$form: peak memory %M KiB" $npack import -q --transport $in $out.bin
	stat -c "$form: %n %s bytes" $weights $out.bin $out.tv4z
	rm -f $out.*
done
