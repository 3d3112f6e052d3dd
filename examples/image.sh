#!/bin/sh
# Makes a container image out of nothing but the Rust compiler: no registry, no base image, no builder.
#
#   examples/image.sh NAME:TAG [VERSION]      VERSION is the tag by default
#
# The server of examples/server is built once, statically, into target/example-image; the image is written in
# the format of `docker save` and loaded. It is the same, byte for byte, each time, so its id stays.
set -eu

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: $0 NAME:TAG [VERSION]" >&2
    exit 2
fi
case ${1##*/} in
*:*) image=$1 ;;
*) image=$1:latest ;;
esac
version=${2:-${image##*:}}
root=$(cd "$(dirname "$0")/.." && pwd)
source=$root/examples/server/main.rs
work=${CARGO_TARGET_DIR:-$root/target}/example-image
layer=$work/layer.tar

digest_of() { sha256sum "$1" | cut -d' ' -f1; }

mkdir -p "$work"
if [ ! -s "$layer" ] || [ "$source" -nt "$layer" ] || [ "$0" -nt "$layer" ]; then
    # Built aside and renamed, so that two builds at once cannot leave half a file.
    build=$(mktemp -d "$work/build.XXXXXX")
    mkdir "$build/tmp"
    chmod 1777 "$build/tmp"
    chmod 755 "$build"
    rustc --edition 2024 -O -C target-feature=+crt-static -C strip=symbols -A warnings \
        -o "$build/server" "$source"
    tar -C "$build" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$layer.$$" .
    rm -r "$build"
    mv "$layer.$$" "$layer"
fi

# SIGKILL, because the server handles no signals: see examples/server/main.rs.
image_dir=$(mktemp -d "$work/image.XXXXXX")
trap 'rm -rf "$image_dir"' EXIT
ln "$layer" "$image_dir/layer.tar"
cat > "$image_dir/config.json" <<JSON
{
  "architecture": "$(docker version --format '{{.Server.Arch}}')",
  "os": "linux",
  "created": "1970-01-01T00:00:00Z",
  "config": {
    "Entrypoint": ["/server"],
    "Env": ["VERSION=$version"],
    "ExposedPorts": {"8080/tcp": {}},
    "StopSignal": "SIGKILL",
    "Labels": {
      "org.opencontainers.image.title": "driftless-example",
      "org.opencontainers.image.version": "$version"
    }
  },
  "rootfs": {"type": "layers", "diff_ids": ["sha256:$(digest_of "$layer")"]},
  "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "examples/image.sh"}]
}
JSON
id=sha256:$(digest_of "$image_dir/config.json")
if [ "$(docker image inspect "$image" --format '{{.Id}}' 2>/dev/null || true)" = "$id" ]; then
    exit 0
fi
printf '[{"Config": "config.json", "RepoTags": ["%s"], "Layers": ["layer.tar"]}]\n' "$image" \
    > "$image_dir/manifest.json"
tar -C "$image_dir" -c manifest.json config.json layer.tar | docker load --quiet >/dev/null
echo "made image $image"
