#!/bin/sh
# Makes an image one that pods can run in: installs Debian packages, and the user that pods run as (kubernetes.run_as_user).
# sshd refuses a uid without a line in passwd. Used by the runner image, and by those on another base.
set -eu
uid=1000
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install --yes --no-install-recommends "$@"
rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*
if ! getent passwd "$uid" >/dev/null; then
    useradd --uid "$uid" --user-group --create-home --shell /bin/sh plumbline
fi
# sshd lets nobody in whose login shell is none.
usermod --shell /bin/sh "$(getent passwd "$uid" | cut -d: -f1)"
