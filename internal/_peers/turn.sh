# For scripts that measure programs beside cp, in turns on one disk; sourced.
TIMEFORMAT='%R s, CPU %U + %S s'

# turn NAME INPUT OUTPUT COMMAND...: how long the command takes to make the output
# of the input, which is read once before, so that it is in memory if it fits.
turn() {
	local name=$1 input=$2 output=$3
	shift 3
	cat "$input" >/dev/null
	sync
	echo -n "$name: $(stat -c %s "$input") bytes, load $(cut -d' ' -f1 /proc/loadavg): "
	time "$@"
	rm -f "$output"
}
