# What runs on the machine with a watchdog: libvirtd, and a shell that the test types into.
# Parameters, from the kernel's command line: HOST, ADVERTISE, SCHEDULER, TIMEOUT.
export PATH=/usr/sbin:/usr/bin HOME=/root
mount -t tmpfs tmpfs /var
mkdir -p /var/log/libvirt /var/lib/libvirt /var/cache/libvirt
ln -s /run /var/run
cp -a /etc /run/etc
mount --bind /run/etc /etc
mkdir -p /etc/libvirt
echo libvirt-qemu:x:64055:64055::/:/bin/sh >>/etc/passwd
echo libvirt-qemu:x:64055: >>/etc/group
cat >/etc/libvirt/libvirtd.conf <<END
auth_unix_ro = "none"
auth_unix_rw = "none"
unix_sock_group = "root"
log_level = 3
log_outputs = "3:file:/var/log/libvirt/libvirtd.log"
END
cat >/etc/libvirt/qemu.conf <<END
security_driver = "none"
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
namespaces = [ ]
END
cat >/run/agent.toml <<END
name = "$HOST"
listen = "0.0.0.0:7300"
advertise = "$ADVERTISE"
insecure_listen = true
schedulers = ["$SCHEDULER"]
driver = "libvirt"
storage_id = "shared"
memory_reserved_mib = 64
[libvirt]
image_dir = "/lab/images"
instance_dir = "/run/instances"
[watchdog]
device = "/dev/watchdog0"
END
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
insmod /lab/watchdog.ko timeout="$TIMEOUT"
ln -s /lab/berth-programs /run/berth-compute-agent
virtlogd &
libvirtd &
# Kept open: what is typed while no process has the line open is lost.
exec 3<>/dev/ttyS1
stty -echo <&3
while ! [ -S /run/libvirt/libvirt-sock ]; do sleep 0.1; done
echo "watched: ready"
# Not at a terminal, by its standard error: it prints no prompt.
while :; do sh <&3 >/dev/null 2>&1; done
