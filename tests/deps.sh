#!/bin/sh
# Installs the system packages that the tests use where it may (root on Debian), else names what is missing.
set -eu
packages="chromium fonts-noto-cjk git iproute2 openssl prometheus"
missing=""
for package in $packages; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "Installing system packages:$missing"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
  echo "System packages are missing:$missing" >&2
  echo "Tests that need them will say so. As root on Debian: apt-get install$missing" >&2
fi
