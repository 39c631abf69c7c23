#!/bin/sh
# run.sh [FLAGS of devicecheck]: looks at this machine's card and writes report.json
# beside itself, in 5 minutes at most. It needs this folder and 4 GB of disk (sparse
# files of the published geometries, whose weights are zero: a kernel's time does not
# depend on them).
set -eu
cd "$(dirname "$0")"
case " $* " in *" -target "*) ;; *)
	for m in 8b 0.6b; do
		[ -f synth-$m.bin ] || ./synth -model $m -o synth-$m.bin
	done
esac
exec ./devicecheck -tests ./cuda.test -target synth-8b.bin -draft synth-0.6b.bin -o report.json "$@"
