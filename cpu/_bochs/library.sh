#!/bin/sh
# Builds the processor of Bochs 3.0, with tiles, from Debian's source: README.md.
#   library.sh FOLDER        writes FOLDER/libbochs.so, in some minutes
# It gets the source where apt gets its packages, and SKIPs where that fails.
# BOCHS_SOURCE may name a folder with bochs_3.0+dfsg.orig.tar.xz.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/apt/lists/partial"
dir=$(cd "$1" && pwd)
tar=bochs_3.0+dfsg.orig.tar.xz
sum=78f6c73d4a6472d5130a87ab9dc306d02c7c71ed8e25b3a8ef642e2a7acd282b
cd "$dir"
skip() {
	echo "SKIP amx: $1"
	exit 3
}
for tool in g++ make; do
	command -v $tool >/dev/null || skip "there is no $tool"
done
if test -n "${BOCHS_SOURCE:-}"; then
	cp "$BOCHS_SOURCE/$tar" .
elif ! test -e $tar; then
	# The release after the one that this machine may have; nothing of the system changes.
	sed -n 's/^Types:.*/Types: deb-src/; s/^Suites:.*/Suites: trixie/; /^$/q; p' /etc/apt/sources.list.d/debian.sources >apt/bochs.sources 2>/dev/null || skip 'apt has no debian.sources'
	apt='-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts='$dir'/apt -o Dir::State::Lists='$dir'/apt/lists -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root -qq'
	apt-get $apt update && apt-get $apt source --download-only bochs=3.0+dfsg-1 || test -e $tar || skip 'apt has no source of Bochs 3.0'
fi
echo "$sum  $tar" | sha256sum -c --quiet
rm -rf bochs-3.0
tar xf $tar
cd bochs-3.0

# The bytes that an instruction takes as signed must be: in 3.0 they are not, which
# later sources of Bochs mend in this way.
sed -i '/^BX_CPP_INLINE Bit32u DPBDS[SU]/,/^}/s/const Bit8u xbyte\[4\] = .*/const Bit8s xbyte[4] = { Bit8s(x), Bit8s(x >> 8), Bit8s(x >> 16), Bit8s(x >> 24) };/' cpu/avx/amx.cc
test "$(grep -c 'const Bit8s xbyte' cpu/avx/amx.cc)" = 2

# Of all that can be instrumented we want two things.
mkdir instrument/npack
cp instrument/stubs/Makefile.in instrument/npack/
cp "$here/bochs.cc" instrument/npack/instrument.cc
{
	echo 'extern "C" void npack_branch(unsigned what), npack_exception(unsigned vector, unsigned error);'
	sed -e '1,/^#else/d' -e '/^#endif/d' \
		-e 's/^#define BX_INSTR_UCNEAR_BRANCH(.*/& npack_branch(what)/' \
		-e 's/^#define BX_INSTR_EXCEPTION(.*/& npack_exception(vector, error_code)/' instrument/stubs/instrument.h
} >instrument/npack/instrument.h

./configure -q --enable-cpu-level=6 --enable-x86-64 --enable-avx --enable-evex --enable-amx --enable-instrumentation=instrument/npack \
	--disable-docbook --disable-plugins --disable-pci --disable-usb --disable-sb16 --disable-gameport --with-nogui --without-x11 CFLAGS='-O1 -fPIC' CXXFLAGS='-O1 -fPIC' >../configure.log
make -s -j2 >../make.log 2>&1
g++ -shared -o ../libbochs.so ./*.o instrument/npack/instrument.o -Wl,--start-group $(find . -name '*.a') -Wl,--end-group -ldl -lpthread
cd .. && rm -rf bochs-3.0
