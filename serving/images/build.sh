#!/bin/sh
# build.sh [control|trainer]...: builds the images with docker, podman or buildah, whichever is there (ENGINE=… chooses).
# BASE, PREFIX, TAG and BUILD_ARGS may be set; images are named ${PREFIX}control:${TAG}. The wheel comes from this checkout.
set -eu
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-.venv/bin/python}
PREFIX=${PREFIX:-hatstack/}
VERSION=$($PYTHON -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
TAG=${TAG:-$VERSION}
REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)
git diff --quiet HEAD 2>/dev/null || REVISION="$REVISION-dirty"
if [ -z "${ENGINE:-}" ]; then
  for name in docker podman buildah; do
    if command -v "$name" >/dev/null && { [ "$name" != docker ] || docker info >/dev/null 2>&1; }; then ENGINE=$name; break; fi
  done
fi
[ -n "${ENGINE:-}" ] || { echo "neither docker, podman nor buildah is here: apt-get install buildah" >&2; exit 5; }
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir "$context/wheels"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 315532800)
export SOURCE_DATE_EPOCH
$PYTHON -m pip wheel --quiet --no-deps --wheel-dir "$context/wheels" .
cp constraints.txt "$context/"
WHEEL=sha256:$(cat "$context"/wheels/hatstack-*.whl | sha256sum | cut -d ' ' -f 1)
# digest_of BASE: what the engine knows a base by, fetched first where it can be; "unknown" for one without.
digest_of() {
  "$ENGINE" pull "$1" >/dev/null 2>&1 || true
  if [ "$ENGINE" = buildah ]; then
    found=$(buildah inspect --type image --format '{{.FromImageDigest}}' "$1" 2>/dev/null || true)
  else
    found=$("$ENGINE" image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$1" 2>/dev/null | sed -n 's/.*@//p' | head -n 1)
  fi
  echo "${found:-unknown}"
}
for image in ${*:-control trainer}; do
  echo "building $PREFIX$image:$TAG with $ENGINE" >&2
  base=${BASE:-$(sed -n 's/^ARG BASE=//p' "serving/images/$image/Containerfile")}
  verb=build
  [ "$ENGINE" = buildah ] && verb=bud
  # shellcheck disable=SC2086  # BUILD_ARGS holds several words on purpose
  "$ENGINE" $verb ${BUILD_ARGS:-} --build-arg BASE="$base" --build-arg BASE_DIGEST="$(digest_of "$base")" \
    --build-arg VERSION="$VERSION" --build-arg REVISION="$REVISION" --build-arg WHEEL="$WHEEL" \
    -f "serving/images/$image/Containerfile" -t "$PREFIX$image:$TAG" "$context"
done
