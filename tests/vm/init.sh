#!/bin/sh
# The first process of the machine: mounts the host's files, read-only, under an overlay in memory, disks with project
# quotas and control groups of version 2, and runs the tests. In any case it switches the machine off at the end.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
halt_now() { echo "vm: $1"; sync; echo o > /proc/sysrq-trigger; sleep 10; }
for module in fs/overlayfs/overlay fs/quota/quota_tree fs/quota/quota_v2; do
  busybox insmod "$SANDLOT_MODULES/kernel/$module.ko" || halt_now "cannot load $module"
done

mount -t tmpfs -o size=2g tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/new
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/new || halt_now "no layer over the host's files"
cd /mnt/new || halt_now "no layer"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t devtmpfs devtmpfs dev
mkdir -p dev/pts dev/shm quota/ext4 quota/xfs
mount -t devpts -o gid=5,mode=620 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs run
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t ext4 -o prjquota /dev/ubda quota/ext4 || halt_now "the ext4 disk cannot be mounted"
if [ -b /dev/ubdb ]; then mount -t xfs -o prjquota /dev/ubdb quota/xfs || halt_now "the xfs disk cannot be mounted"; fi
chmod 1777 quota/ext4 quota/xfs
ln -sf /proc/self/fd dev/fd
ip link set lo up
mkdir -p mnt/old
pivot_root . mnt/old
cd "$SANDLOT_REPOSITORY" && "$SANDLOT_NODE" --conditions=sandlot-source tests/vm/guest.ts
halt_now "ended $?"
