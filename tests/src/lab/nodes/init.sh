#!/usr/bin/sh
# The first process of the machine with four nodes: it starts one program and collects whatever
# ends. It does not run anything itself: libvirtd would take a QEMU that ended, and was not
# collected, for alive, and wait for 40 s.
export PATH=/usr/sbin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
grep -q ' /dev ' /proc/mounts || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
for place in /dev/shm /run /tmp; do mount -t tmpfs tmpfs $place; done
exec >/dev/ttyS0 2>&1 </dev/null
for module in /lab/modules/*.ko; do insmod "$module"; done
ip link set lo up
echo "berth-nodes: up $(cut -d' ' -f1 /proc/uptime)"
sh /lab/command &
wait $!
echo "berth-nodes: status $?"
poweroff -f
