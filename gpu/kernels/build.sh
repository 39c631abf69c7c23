#!/bin/sh
# build.sh [DIR]: writes kernels_70.ptx and kernels_80.ptx to DIR (or here) from
# kernels.k. Only clang-19 gives the committed bytes; it needs no CUDA SDK.
# mma.sync on single bits is of PTX 7.1 (driver 455 and later).
set -eu
cd "$(dirname "$0")"
for arch in 70 80; do
	feature=ptx60
	[ $arch = 80 ] && feature=ptx71
	"${CLANG:-clang-19}" -x cuda --cuda-device-only --cuda-gpu-arch=sm_$arch -Xclang -target-feature -Xclang +$feature \
		-nocudainc -nocudalib -O3 -ffp-contract=off -Wall -Wno-unused-function -Werror -S cuda.cu -o "${1:-.}/kernels_$arch.ptx"
done
