#!/bin/sh
# build.sh [DIR]: writes kernels_70.ptx and kernels_80.ptx to DIR (or here) from
# kernels.k, without clang's comments. Only clang-19 gives the committed bytes; it
# needs no CUDA SDK. mma.sync on single bits is of PTX 7.1 (driver 455 and later).
set -eu
cd "$(dirname "$0")"
for arch in 70 80; do
	feature=ptx60
	[ $arch = 80 ] && feature=ptx71
	out=${1:-.}/kernels_$arch.ptx
	"${CLANG:-clang-19}" -x cuda --cuda-device-only --cuda-gpu-arch=sm_$arch -Xclang -target-feature -Xclang +$feature \
		-nocudainc -nocudalib -O3 -ffp-contract=off -Wall -Wno-unused-function -Werror -S cuda.cu -o - |
		sed -e 's,[[:space:]]*//.*$,,' -e '/^$/d' >"$out"
	# What may be contracted or flushed would not give the bits of NUMERICS.md.
	if grep -nE '\b(add|sub|mul|mad|fma|div|sqrt)\.f32|\bfma\.|\.ftz|\.approx|\.f64' "$out"; then
		echo "$out: f32 arithmetic that is not one operation rounded to nearest" >&2
		exit 1
	fi
done
