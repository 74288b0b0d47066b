#!/bin/bash
# Makes localhost/sandlot-test:1, the image of the cluster tests: a root file system, and the daemon with a Node in /opt/sandlot.
#   sandbox-image.sh ROOTFS.tar NODE DAEMON-DIRECTORY     (the directory that `npm run build` makes: packages/sandboxd/dist)
# With the cluster up the image is loaded into its nodes at once.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[ $# = 3 ] || die "sandbox-image.sh ROOTFS.tar NODE DAEMON-DIRECTORY"
W=$(mktemp -d); trap 'rm -rf "$W"' EXIT
mkdir -p "$W/opt/sandlot"
# Not called node: `pkill node` inside must end the programs of an agent only.
install -m 755 "$2" "$W/opt/sandlot/d"
install -m 644 "$3/sandboxd.cjs" "$3/supervisor.sh" "$W/opt/sandlot/"
for n in pty.node koffi.node; do [ ! -f "$3/$n" ] || install -m 644 "$3/$n" "$W/opt/sandlot/"; done
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@1577836800 -C "$W" -cf "$W/daemon.tar" opt
"$HERE/images.sh" localhost/sandlot-test:1 "$1" "$W/daemon.tar"
for d in "$C"/node*/; do
  if [ -S "$d/containerd.sock" ] && ctr -a "$d/containerd.sock" version >/dev/null 2>&1; then
    ctr -a "$d/containerd.sock" -n k8s.io images import "$KUBE_IMG/sandlot-test.tar" >/dev/null; say "loaded into $(basename "$d")"
  fi
done
