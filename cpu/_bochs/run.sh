#!/bin/sh
# Runs the tests of a set of kernels on an emulated processor: see README.md.
#   run.sh SET [TEST FLAG]...
# SET is avx512vnni, avxvnni or amx, whose emulator is built first (minutes).
# BOCHS_MODEL names another processor than the set's: tigerlake, arrow_lake (AVX-VNNI without AVX-512), sapphire_rapids,
# corei7_icelake_u, corei7_skylake_x or corei3_cnl (which lack VNNI), ...
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=$root/tmp/bochs
export BOCHS_SET="${1:?which set of kernels?}"
shift
case $BOCHS_SET in
avx512vnni) model=tigerlake feature=avx512_vnni ;;
avxvnni) model=arrow_lake feature=avx_vnni ;;
amx) model=sapphire_rapids feature=amx_int8 ;;
*) echo "run.sh: no set $BOCHS_SET: there are avx512vnni, avxvnni, amx" >&2 && exit 2 ;;
esac
export BOCHS_MODEL="${BOCHS_MODEL:-$model}"
if test $# = 0; then # the tests of kernels and a little of a model; all of it would take hours
	tests=$(cd "$root/cpu" && sed -n 's/^func \(Test[^(]*\)(.*/\1/p' kernels_test.go inplace_test.go inplace_linux_test.go int8_test.go dotmaxcols_test.go vectors_test.go | tr '\n' '|')
	set -- -test.short -test.run "^(${tests}TestSelfTest|TestModel)\$/^$BOCHS_SET\$"
fi

mkdir -p "$dir"
cd "$root"
CGO_ENABLED=0 ${GO:-go} test -c -tags bochs -o "$dir/$BOCHS_SET.test" ./cpu
cd cpu
if grep -qw $feature /proc/cpuinfo; then
	echo "$BOCHS_SET: this processor needs no emulator"
	exec "$dir/$BOCHS_SET.test" "$@"
fi
skip() {
	echo "SKIP $BOCHS_SET: $1"
	exit 0
}
if test $BOCHS_SET = amx; then
	export BOCHS_LIBRARY="$dir/3/libbochs.so"
	if test -z "$(find "$BOCHS_LIBRARY" -newer "$here/bochs.cc" -newer "$here/library.sh" 2>/dev/null)"; then
		"$here/library.sh" "$dir/3" || skip 'there is no Bochs 3'
	fi
	exec python3 "$here/emulate.py" "$dir/$BOCHS_SET.test" "$@"
fi
if ! "$dir/venv/bin/python" -c '' 2>/dev/null; then
	python3 -m venv "$dir/venv" 2>/dev/null || skip 'no Python that makes environments (Debian: python3-venv)'
fi
"$dir/venv/bin/pip" install -q --disable-pip-version-check --only-binary=:all: bochscpu-python==0.4.0 || skip 'PyPI does not give bochscpu-python 0.4.0 for this machine'
cc -O1 -Wall -shared -fPIC -o "$dir/preload.so" "$here/preload.c" || skip 'no C compiler'
LD_PRELOAD=$dir/preload.so exec "$dir/venv/bin/python" "$here/emulate.py" "$dir/$BOCHS_SET.test" "$@"
