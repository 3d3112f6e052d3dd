#!/bin/sh
# Builds what a release publishes into the folder DIST (target/dist-files by default):
#
#   driftless-VERSION-TARGET.tar.gz   the program, its unit, configuration, manual pages, completions, documents
#   driftless_VERSION_ARCH.deb        the same as a Debian package
#   driftless-VERSION-TARGET.cdx.json the software bill of materials (CycloneDX)
#   install.sh                        installs one of them, with its checksum verified
#   SHA256SUMS                        checksums of all of them
#   SHA256SUMS.sig                    with COSIGN_KEY: their signature by cosign
#
# DIST_TARGET is the target of Rust. For gnu targets zig links against glibc 2.31 (Debian 11, Ubuntu 20.04); it is fetched
# as a Python package. Without it the program needs the glibc of this machine, and this script says so. DIST_BINARY packs
# a program that was built before. With DIST_QUICK=1, for tests, nothing is compressed well. With DIST_TAG the version
# must be that of the tag, and CHANGELOG.md must describe it.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
say() { echo "dist: $*" >&2; }
fail() { say "$*"; exit 1; }

glibc=2.31
zig_version=0.17.1
host=$(rustc -vV | sed -n 's/^host: //p')
target=${DIST_TARGET:-$host}
targets=${CARGO_TARGET_DIR:-$root/target}
out=${DIST:-$targets/dist-files}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
[ -n "$version" ] || fail "Cargo.toml has no version"
if [ -n "${DIST_TAG:-}" ]; then
    [ "$DIST_TAG" = "v$version" ] || fail "the tag $DIST_TAG is not v$version, the version of Cargo.toml"
    grep -q "^## \[$version\]" CHANGELOG.md || fail "CHANGELOG.md has no section for $version"
fi
case $target in
x86_64-*) arch=amd64 ;;
aarch64-*) arch=arm64 ;;
*) fail "no name for the architecture of $target" ;;
esac

# find_zig: sets ZIG. False: there is none.
find_zig() {
    [ -z "${ZIG:-}" ] || return 0
    ZIG=$targets/dist-tools/ziglang/zig
    [ -x "$ZIG" ] || python3 -m pip install --quiet --disable-pip-version-check --target "$targets/dist-tools" \
        "ziglang==$zig_version" >&2 || return 1
    [ -x "$ZIG" ]
}

build() {
    name=$(echo "$target" | tr '[:lower:]-' '[:upper:]_')
    case $target in
    *-gnu | *-musl)
        if find_zig; then
            # With musl the program is static: it needs no C library of the host.
            case $target in
            *-gnu) ZIG_TARGET="${target%%-*}-linux-gnu.$glibc" ;;
            *) ZIG_TARGET="${target%%-*}-linux-musl" ;;
            esac
            export ZIG ZIG_TARGET
            export "CC_$(echo "$target" | tr - _)=$root/scripts/zig-cc.sh"
            export "CARGO_TARGET_${name}_LINKER=$root/scripts/zig-cc.sh"
        else
            [ "$target" = "$host" ] || fail "zig cannot be fetched, and $target cannot be linked without it"
            say "zig cannot be fetched: the program will need the glibc of this machine"
        fi
        ;;
    esac
    cargo build --profile dist --locked --bin driftless --target "$target"
    DIST_BINARY=$targets/$target/dist/driftless
}

[ -n "${DIST_BINARY:-}" ] || build
[ -x "$DIST_BINARY" ] || fail "$DIST_BINARY is no program"
# Symbols stay out, also in a program that was built in another profile.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=driftless-$version-$target
tree=$work/$name
mkdir -p "$tree/man" "$tree/completions" "$tree/docs" "$out"
rm -f "$out/$name".* "$out"/SHA256SUMS*
strip -o "$tree/driftless" "$DIST_BINARY" 2>/dev/null || cp "$DIST_BINARY" "$tree/driftless"
chmod 755 "$tree/driftless"
cp LICENSE README.md CHANGELOG.md deploy/driftless.service config/driftless.schema.json "$tree"
cp config/driftless.yaml "$tree/driftless.example.yaml"
# Messages name sections of these.
cp docs/*.md "$tree/docs"
if [ "$target" = "$host" ]; then program=$tree/driftless; else program=${DIST_HOST_BINARY:-}; fi
if [ -n "$program" ]; then
    "$program" man "$tree/man"
    "$program" completion bash >"$tree/completions/driftless.bash"
    "$program" completion zsh >"$tree/completions/_driftless"
    "$program" completion fish >"$tree/completions/driftless.fish"
else
    say "no manual pages and completions: name a program that runs here in DIST_HOST_BINARY"
fi
needs=$(objdump -T "$tree/driftless" 2>/dev/null | sed -n 's/.*(*GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -n 1)
[ -z "$needs" ] || say "the program needs glibc $needs or newer"

# The same date in each build of a commit.
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
level=9
[ -z "${DIST_QUICK:-}" ] || level=1
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -C "$work" -cf - "$name" | gzip "-${level}n" \
    >"$out/$name.tar.gz"
python3 scripts/sbom.py "$target" >"$out/$name.cdx.json"
case $target in *-musl) package= ;; *) package=$out/driftless_${version}_$arch.deb ;; esac
if [ -z "$package" ]; then
    say "no Debian package of $target: that of the gnu target is for Debian"
elif command -v dpkg-deb >/dev/null 2>&1; then
    rm -f "$package"
    SOURCE_DATE_EPOCH=$epoch deploy/package/deb.sh "$tree" "$version" "$arch" "${needs:-$glibc}" \
        "$package"
else
    say "no Debian package: dpkg-deb is missing"
fi
# The script installs this version; with DIST_URL from the address of the releases.
sed "s|^version=.*|version=$version|; s|^from=.*|from=${DIST_URL:-}|" deploy/install.sh >"$out/install.sh"
chmod 755 "$out/install.sh"
(cd "$out" && sha256sum driftless[-_]* >SHA256SUMS)
if [ -n "${COSIGN_KEY:-}" ]; then
    cosign sign-blob --yes --key "$COSIGN_KEY" --output-signature "$out/SHA256SUMS.sig" "$out/SHA256SUMS"
fi
ls -l "$out" >&2
