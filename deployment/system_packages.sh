#!/bin/sh
# Install what is missing from the system's packages when root; otherwise print the one line to run, and fail.
# Usage: system_packages.sh PROBE=PACKAGE…   where PROBE is a command, or 'ensurepip:PYTHON' for Python's venv support.
set -eu

missing=""
for pair in "$@"; do
    probe=${pair%=*}
    package=${pair##*=}
    case $probe in
        ensurepip:*)
            python=${probe#ensurepip:}
            if command -v "$python" >/dev/null && ! "$python" -c 'import ensurepip' 2>/dev/null; then
                version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
                missing="$missing python$version-venv"
            fi
            ;;
        *) command -v "$probe" >/dev/null || missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

line="apt-get update && apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing:$missing. Run this once, then make again:" >&2
    echo "  sudo sh -c '$line'" >&2
    exit 2
fi
echo "installing$missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { apt-get update && apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    exit 5
fi
rm -f "$log"
