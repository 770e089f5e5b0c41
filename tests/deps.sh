#!/bin/sh
# deps.sh [PACKAGE]...: installs the system packages that the tests use, and those named, where it may (root on Debian), else names what is missing.
set -eu
packages="chromium fonts-noto-cjk git iproute2 openssl prometheus $*"
missing=""
for package in $packages; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
# The official openai client for JavaScript, at the version of its lock file; needs npm, from Debian or elsewhere.
client="$(dirname "$0")/serving/node"
if [ ! -e "$client/node_modules/openai/package.json" ]; then
  command -v npm >/dev/null 2>&1 || packages="$packages npm" missing="$missing npm"
fi
fetch() {
  [ ! -e "$client/node_modules/openai/package.json" ] || return 0
  command -v npm >/dev/null 2>&1 && npm ci --prefix "$client" --ignore-scripts --no-audit --no-fund --silent
}
[ -n "$missing" ] || { fetch || echo "npm cannot fetch the openai client for $client" >&2; exit 0; }
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "Installing system packages:$missing"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
  echo "System packages are missing:$missing" >&2
  echo "Tests that need them will say so. As root on Debian: apt-get install$missing" >&2
fi
fetch || echo "npm cannot fetch the openai client for $client" >&2
