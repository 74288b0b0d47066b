#!/bin/sh
# The entry of sandlot/aio: what the container was given becomes the daemon's configuration, and this shell becomes the supervisor.
set -eu
configuration=$(/usr/local/bin/node /opt/sandlot/configuration.cjs)
# The daemon itself runs with an environment of its own; commands get the container's, which the configuration holds. From here on the
# first process is closed to them, and so is the daemon: both are run by a loader that may be executed and not read.
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/tmp \
  /opt/sandlot/loader /bin/sh /opt/sandlot/supervisor.sh /opt/sandlot/loader /opt/sandlot/sandboxd \
  --single-threaded-gc --no-concurrent-recompilation --v8-pool-size=1 --max-semi-space-size=1 \
  /opt/sandlot/sandboxd.cjs 3<<END
$configuration
END
