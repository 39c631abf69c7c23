#!/bin/sh
# Runs the tests of package cpu on an emulated processor. See README.md.
#   run.sh [TEST FLAG]...
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
model=${BOCHS_MODEL:-tigerlake}
dir=${BOCHS_DIR:-$root/tmp/bochs}
mkdir -p "$dir/iso"
cd "$dir"

# A kernel: Debian's for virtual machines, small and with a serial console.
if [ ! -s vmlinuz ]; then
	name=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-\)/\1/p')
	apt-get download "$name"
	dpkg-deb --fsys-tarfile "$name"_*.deb | tar -xO --wildcards './boot/vmlinuz-*' >vmlinuz.part
	mv vmlinuz.part vmlinuz
	rm -f "$name"_*.deb
fi

# The first process, the tests and their flags, as an archive in memory.
rm -rf files
mkdir files files/dev
(cd "$root" && CGO_ENABLED=0 go build -ldflags '-s -w' -o "$dir/files/init" ./cpu/_bochs/init.go)
(cd "$root" && CGO_ENABLED=0 GOAMD64=v1 go test -c -ldflags '-s -w' -o "$dir/files/tests" "${BOCHS_PACKAGE:-./cpu}")
for a; do printf '%s\n' "$a"; done >files/args
(cd files && find . | cpio --quiet -o -H newc) >iso/initrd
cp vmlinuz iso/

# A disc that boots them.
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 iso/
cat >iso/isolinux.cfg <<END
default linux
prompt 0
label linux
  kernel /vmlinuz
  initrd /initrd
  append console=ttyS0,115200 loglevel=4 mitigations=off nokaslr tsc=reliable lpj=1000000 nosmp panic=-1
END
xorriso -as mkisofs -quiet -o boot.iso -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table iso

cat >bochsrc <<END
display_library: rfb, options="timeout=0"
config_interface: textconfig
cpu: model=$model, count=1, ips=60000000, reset_on_triple_fault=0
megs: 512
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0-master: type=cdrom, path=$dir/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$dir/serial.txt
clock: sync=none, time0=1700000000
log: $dir/bochs.log
speaker: enabled=0
sound: waveoutdrv=dummy
panic: action=fatal
error: action=ignore
info: action=ignore
END
echo continue >go
rm -f serial.txt
# The display wants a terminal; script gives it one that nobody sees.
TERM=xterm timeout "${BOCHS_SECONDS:-1500}" script -qec "bochs -q -f $dir/bochsrc -rc $dir/go" /dev/null >screen.txt 2>&1 </dev/null || true
tr -d '\r' <serial.txt
grep -q '^init: exit status 0' serial.txt
