#!/bin/sh
# The setup of the image after its packages: root runs it in the image's own root, by `Dockerfile` and by
# `../build.mjs`.
set -eu

# A container started by hand runs as an unprivileged account. Sandlot itself sets the account of a workspace.
groupadd --gid 1000 sandbox
useradd --uid 1000 --gid 1000 --home-dir /mnt/user-data/.home --no-create-home --shell /bin/bash sandbox
# The home is a part of the workspace. Without Sandlot it is this directory; with it, the thread's own is mounted here.
mkdir -p /mnt/user-data/.home
chown 1000:1000 /mnt/user-data /mnt/user-data/.home
chmod 0700 /mnt/user-data/.home
ln -s /mnt/user-data/.home /home/sandbox

ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
chmod 0755 /usr/local/lib/node_modules/npm/bin/npm-cli.js /usr/local/lib/node_modules/npm/bin/npx-cli.js

# No process inside changes its account, so no program needs the right to.
find / -xdev -type f -perm /6000 -exec chmod a-s {} +

# Files for people at a terminal, other languages, and files that apt and Python can make again. Licences stay.
find /usr/share/doc -depth -type f ! -name copyright -delete
find /usr/share/doc -depth -type d -empty -delete
find /usr/share/doc -xtype l -delete
rm -rf /usr/share/man /usr/share/info /usr/share/lintian /usr/share/linda /usr/share/groff
find /usr/share/locale -mindepth 1 -maxdepth 1 ! -name locale.alias -exec rm -rf {} +
rm -rf /usr/local/lib/node_modules/npm/docs /usr/local/lib/node_modules/npm/man
find /usr/lib/python3 /usr/lib/python3.11 -depth -type d -name __pycache__ -exec rm -rf {} + 2>/dev/null || true
rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/debconf/*-old /var/log/* /tmp/* /var/tmp/*
rm -f /etc/machine-id /opt/packages.txt /opt/setup.sh
