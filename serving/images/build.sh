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
$PYTHON -m pip wheel --quiet --no-deps --wheel-dir "$context/wheels" .
cp constraints.txt "$context/"
for image in ${*:-control trainer}; do
  echo "building $PREFIX$image:$TAG with $ENGINE" >&2
  verb=build
  [ "$ENGINE" = buildah ] && verb=bud
  # shellcheck disable=SC2086  # BUILD_ARGS holds several words on purpose
  "$ENGINE" $verb ${BUILD_ARGS:-} ${BASE:+--build-arg BASE="$BASE"} --build-arg VERSION="$VERSION" \
    --build-arg REVISION="$REVISION" -f "serving/images/$image/Containerfile" -t "$PREFIX$image:$TAG" "$context"
done
