#!/usr/bin/env bash
# Packs and unpacks a container with npack and with what else there is, one after
# the other in one thread, and prints the size and the MB/s of CPU time (user and
# system) of each:
#
#	make synth-8b-part && internal/_peers/compare.sh dist/synth-8b-part.bin
#
# zstd and xz are the programs of that name; gzip, lzw and zstd (Go) are the
# packages compress/gzip, compress/lzw and klauspost/compress/zstd.
set -eu
in=$(realpath "$1")
cd "$(dirname "$0")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/peers" .
(cd ../.. && CGO_ENABLED=0 go build -o "$tmp/npack" ./cmd/npack)
size=$(wc -c < "$in")
export GOMAXPROCS=2 # no more than the one thread at work and the collector

# cpu COMMAND: runs it and prints the CPU seconds.
cpu() {
	local TIMEFORMAT='%U %S'
	{ time bash -c "$1" >/dev/null; } 2>&1 | tail -1 | awk '{ printf "%.2f", $1 + $2 }'
}

row() { # name, pack, unpack, with {in}, {packed} and {out}
	local packed="$tmp/x.packed" out="$tmp/x.out" p u
	fill() { local s=${1//\{in\}/$in}; s=${s//\{packed\}/$packed}; echo "${s//\{out\}/$out}"; }
	rm -f "$packed" "$out"
	p=$(cpu "$(fill "$2")")
	u=$(cpu "$(fill "$3")")
	cmp -s "$in" "$out" || { echo "$1: another file came back"; exit 1; }
	awk -v n="$1" -v s="$size" -v c="$(wc -c < "$packed")" -v p="$p" -v u="$u" \
		'BEGIN { printf "| %s | %.2f %% | %.1f | %.1f |\n", n, 100 * c / s, s / 1e6 / p, s / 1e6 / u }'
}

echo "$(basename "$in"): $size bytes; MB of the container per second of CPU time"
echo "| program | size | pack | unpack |"
echo "| --- | --- | --- | --- |"
row 'npack (tv4z)' "$tmp/npack compress -q -t 1 {in} {packed}" "$tmp/npack expand -q -t 1 {packed} {out}"
row 'npack (tv4z), --no-check' "$tmp/npack compress -q -t 1 {in} {packed}" "$tmp/npack expand --no-check -q -t 1 {packed} {out}"
row 'npack (t5q)' "$tmp/npack compress --packed -q {in} {packed}" "mv {packed} {packed}.t5q; $tmp/npack expand -q {packed}.t5q {out}; mv {packed}.t5q {packed}"
row 'compress/lzw' "$tmp/peers lzw < {in} > {packed}" "$tmp/peers lzw -d < {packed} > {out}"
row 'compress/gzip -9' "$tmp/peers gzip < {in} > {packed}" "$tmp/peers gzip -d < {packed} > {out}"
row 'klauspost zstd, best' "$tmp/peers zstd < {in} > {packed}" "$tmp/peers zstd -d < {packed} > {out}"
row 'zstd -3' "zstd -q -3 --single-thread -c {in} > {packed}" "zstd -q -d -c {packed} > {out}"
row 'zstd -19' "zstd -q -19 --single-thread -c {in} > {packed}" "zstd -q -d -c {packed} > {out}"
row 'xz -6' "xz -6 -T1 -c {in} > {packed}" "xz -d -T1 -c {packed} > {out}"
