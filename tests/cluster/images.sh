#!/bin/bash
# Makes the local images as docker-archive tars in KUBE_IMG, without a registry and without a daemon.
#   images.sh                 localhost/pause:1 and localhost/test:1 (busybox, and node with its libraries where node is installed)
#   images.sh REF LAYER.tar...  one more image REF from archives of its layers, as KUBE_IMG/<name>.tar; up.sh loads every *.tar
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
mkdir -p "$KUBE_IMG"; W=$(mktemp -d "$KUBE_IMG/.work.XXXXXX"); trap 'rm -rf "$W"' EXIT
T='tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@1577836800'
image() { # image OUT REF CONFIG-JSON LAYER.tar...
  local out=$1 ref=$2 cfg=$3 l d diffs= names= h=; shift 3
  rm -rf "$W/i"; mkdir "$W/i"
  for l in "$@"; do
    d=$(sha256sum "$l" | cut -d' ' -f1); mkdir "$W/i/$d"; ln "$l" "$W/i/$d/layer.tar" 2>/dev/null || cp "$l" "$W/i/$d/layer.tar"
    diffs="$diffs${diffs:+,}\"sha256:$d\""; names="$names${names:+,}\"$d/layer.tar\""; h="$h${h:+,}{\"created\":\"2020-01-01T00:00:00Z\"}"
  done
  printf '{"architecture":"amd64","os":"linux","created":"2020-01-01T00:00:00Z","config":%s,"rootfs":{"type":"layers","diff_ids":[%s]},"history":[%s]}' "$cfg" "$diffs" "$h" >"$W/i/config.json"
  d=$(sha256sum "$W/i/config.json" | cut -d' ' -f1); mv "$W/i/config.json" "$W/i/$d.json"
  printf '[{"Config":"%s.json","RepoTags":["%s"],"Layers":[%s]}]' "$d" "$ref" "$names" >"$W/i/manifest.json"
  $T --hard-dereference -C "$W/i" -cf "$out.new" . && mv "$out.new" "$out"; say "$ref -> $out, $(du -m "$out" | cut -f1) MiB"
}
P='"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]'
if [ $# -ge 2 ]; then r=$1; shift; n=${r##*/}; image "$KUBE_IMG/${n%%:*}.tar" "$r" "{\"Cmd\":[\"/bin/sh\"],$P,\"WorkingDir\":\"/\"}" "$@"; exit; fi
mkdir "$W/pause"; install -m 755 "$KUBE_BIN/pause" "$W/pause/pause"; $T -C "$W/pause" -cf "$W/pause.tar" pause
image "$KUBE_IMG/pause.tar" localhost/pause:1 '{"Entrypoint":["/pause"],"User":"65535:65535"}' "$W/pause.tar"
R=$W/root; mkdir -p "$R"/{usr/bin,usr/lib,usr/lib64,etc,tmp,root,proc,sys,dev,srv,var/run,home/user}; chmod 1777 "$R/tmp"
ln -s usr/bin "$R/bin"; ln -s usr/bin "$R/sbin"; ln -s usr/lib "$R/lib"; ln -s usr/lib64 "$R/lib64"
bin() { # bin FILE: the program and its libraries
  local l d; install -m 755 "$1" "$R/usr/bin/"; for l in $(ldd "$1" 2>/dev/null | grep -oE '/[^ ]+' | sort -u); do d=${l%/*}; d=$R/usr${d#/usr}; mkdir -p "$d"; cp -L "$l" "$d/"; done
}
# busybox not from busybox-static: that one crashes as soon as it looks up a name (static glibc)
B=$KUBE_DEB/bin/busybox; [ -x "$B" ] || B=$KUBE_DEB/usr/bin/busybox; bin "$B"; for a in $("$B" --list); do [ "$a" = busybox ] || ln -s busybox "$R/usr/bin/$a"; done
printf 'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n' >"$R/etc/passwd"; printf 'root:x:0:\nuser:x:1000:\n' >"$R/etc/group"
if N=$(command -v node); then
  bin "$(readlink -f "$N")"
  cat >"$R/srv/server.js" <<'J'
const http = require('http'), os = require('os');
http.createServer((q, r) => r.end(`hello from ${os.hostname()} ${q.url}\n`)).listen(+process.env.PORT || 8080, '0.0.0.0');
for (const s of ['SIGTERM', 'SIGINT']) process.on(s, () => process.exit(0));
J
fi
printf '#!/bin/sh\n# answers every request on $PORT (8080) with the host name\nmkdir -p /tmp/www && hostname >/tmp/www/index.html && echo serving && exec httpd -f -p "${PORT:-8080}" -h /tmp/www\n' >"$R/srv/serve"; chmod 755 "$R/srv/serve"
# says "reached" or "cut"; anything else (a crash of the probe) says "broken", so that no check can pass by accident. No "wget -T": it crashes in Debian 12
printf '#!/bin/sh\n# reach HOST PORT\ntimeout 5 nc -w 2 "$1" "$2" </dev/null >/dev/null 2>&1; r=$?; case $r in 0) echo reached ;; 1 | 143) echo cut ;; *) echo broken $r ;; esac\n' >"$R/srv/reach"; chmod 755 "$R/srv/reach"
$T -C "$R" -cf "$W/root.tar" .
image "$KUBE_IMG/test.tar" localhost/test:1 "{\"Cmd\":[\"/bin/sh\"],$P,\"WorkingDir\":\"/\"}" "$W/root.tar"
