#!/bin/sh
# Runs the tests of the AVX-512 kernels on an emulated processor: see README.md.
#   run.sh [TEST FLAG]...
# BOCHS_MODEL names the processor: tigerlake (the default), sapphire_rapids,
# corei7_icelake_u, corei7_skylake_x or corei3_cnl (which lack VNNI), ...
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=$root/tmp/bochs
export BOCHS_MODEL="${BOCHS_MODEL:-tigerlake}"
if test $# = 0; then # the tests of kernels; those of whole models take hours
	tests=$(cd "$root/cpu" && sed -n 's/^func \(Test[^(]*\)(.*/\1/p' kernels_test.go int8_test.go dotmaxcols_test.go vectors_test.go | tr '\n' '|')
	set -- -test.short -test.run "^(${tests}TestSelfTest)\$/^avx512"
fi

mkdir -p "$dir"
cd "$root"
CGO_ENABLED=0 ${GO:-go} test -c -tags bochs -o "$dir/cpu.test" ./cpu
cd cpu
if grep -qw avx512_vnni /proc/cpuinfo; then
	echo 'avx512: this processor needs no emulator'
	exec "$dir/cpu.test" "$@"
fi
skip() {
	echo "SKIP avx512: $1"
	exit 0
}
if ! "$dir/venv/bin/python" -c '' 2>/dev/null; then
	python3 -m venv "$dir/venv" 2>/dev/null || skip 'no Python that makes environments (Debian: python3-venv)'
fi
"$dir/venv/bin/pip" install -q --disable-pip-version-check --only-binary=:all: bochscpu-python==0.4.0 || skip 'PyPI does not give bochscpu-python 0.4.0 for this machine'
cc -O1 -Wall -shared -fPIC -o "$dir/preload.so" "$here/preload.c" || skip 'no C compiler'
LD_PRELOAD=$dir/preload.so exec "$dir/venv/bin/python" "$here/emulate.py" "$dir/cpu.test" "$@"
