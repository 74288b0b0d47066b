#!/bin/sh
# The entry of sandlot/aio: the container's settings become the daemon's configuration, and this shell becomes the
# supervisor.
set -eu
# The home is missing where the whole workspace is mounted. A workspace that cannot be written has none; commands say so.
mkdir -p /mnt/user-data/.home || echo "sandlot/aio: there is no home directory" >&2
configuration=$(/usr/local/bin/node /opt/sandlot/configuration.cjs)
# The daemon itself runs with its own environment; commands get the container's, which the configuration holds. From
# here on the first process and the daemon are closed to commands: a loader that may be executed and not read runs both.
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/tmp \
  /opt/sandlot/loader /bin/sh /opt/sandlot/supervisor.sh /opt/sandlot/loader /opt/sandlot/sandboxd \
  --single-threaded-gc --no-concurrent-recompilation --v8-pool-size=1 --max-semi-space-size=1 \
  /opt/sandlot/sandboxd.cjs 3<<END
$configuration
END
