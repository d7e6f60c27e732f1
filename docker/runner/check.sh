#!/bin/sh
# Fails the build of an image that pods could not use: Python, the user, the programs of gangs, and each program named.
set -eu
python=/usr/bin/python3
"$python" -c 'import sys; assert sys.version_info >= (3, 11), f"Python {sys.version} is older than 3.11"'
getent passwd 1000 >/dev/null
for program in ssh sshd ssh-keygen mpirun "$@"; do
    found=$(PATH="$PATH:/usr/sbin" command -v "$program") || { echo "no $program in this image" >&2; exit 1; }
    if ldd "$found" 2>/dev/null | grep "not found" >&2; then echo "$found lacks libraries" >&2; exit 1; fi
done
export PYTHONPATH=/opt/plumbline/include PYTHONDONTWRITEBYTECODE=1
for module in node gang worker probe; do
    "$python" -m "plumbline.kubernetes.$module" --help >/dev/null
done
