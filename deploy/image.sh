#!/bin/sh
# Builds the container image of a release from the archive that `make dist` has made.
# IMAGE is its name (driftless:VERSION by default), DEBIAN the image that the libraries are taken from.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
targets=${CARGO_TARGET_DIR:-$root/target}
out=${DIST:-$targets/dist-files}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
target=${DIST_TARGET:-$(rustc -vV | sed -n 's/^host: //p')}
archive=$out/driftless-$version-$target.tar.gz
[ -e "$archive" ] || { echo "image: $archive is missing: make dist" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xzf "$archive" -C "$work" --strip-components=1 "driftless-$version-$target/driftless"
cp "$root/deploy/release.Dockerfile" "$work/Dockerfile"
docker build --tag "${IMAGE:-driftless:$version}" --build-arg VERSION="$version" \
    --build-arg REVISION="$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)" \
    --build-arg DEBIAN="${DEBIAN:-debian:bookworm-slim}" "$work"
