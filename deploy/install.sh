#!/bin/sh
# Installs, upgrades or removes Driftless on a Linux host.
#
#   install.sh [--version VERSION] [--from URL] [--key FILE] [--prefix FOLDER] [--root FOLDER]
#   install.sh --uninstall [--prefix FOLDER] [--root FOLDER]
#
# --from is the address of the releases: the files are at URL/vVERSION/. Nothing is installed unless the SHA-256 checksum of
# the archive is the one in SHA256SUMS; with --key FILE (a public key of cosign) SHA256SUMS must be signed too. The
# configuration and the state directory are never changed or removed. --root installs below another root folder and leaves
# the service manager alone.
set -eu

version=
from=
prefix=/usr/local
root=
key=
uninstall=

say() { echo "install: $*" >&2; }
fail() { say "$*"; exit 1; }
value() { [ $# -ge 2 ] || fail "$1 needs a value"; }

while [ $# -gt 0 ]; do
    case $1 in
    --version) value "$@"; version=${2#v}; shift ;;
    --from) value "$@"; from=${2%/}; shift ;;
    --prefix) value "$@"; prefix=$2; shift ;;
    --root) value "$@"; root=${2%/}; shift ;;
    --key) value "$@"; key=$2; shift ;;
    --uninstall) uninstall=yes ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "unknown argument $1; see --help" ;;
    esac
    shift
done

case $prefix in /*) ;; *) fail "--prefix must be absolute" ;; esac
program=$root$prefix/bin/driftless
unit=$root/etc/systemd/system/driftless.service
man=$root$prefix/share/man/man1
share=$root$prefix/share/driftless
bash=$root$prefix/share/bash-completion/completions/driftless
zsh=$root$prefix/share/zsh/site-functions/_driftless
fish=$root$prefix/share/fish/vendor_completions.d/driftless.fish

# has_systemd: whether systemd runs on this host and manages the installed unit.
has_systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

if [ -n "$uninstall" ]; then
    if has_systemd; then systemctl disable --now driftless.service 2>/dev/null || true; fi
    rm -f "$program" "$unit" "$man"/driftless.1 "$man"/driftless-*.1 "$bash" "$zsh" "$fish"
    rm -rf "$share"
    if has_systemd; then systemctl daemon-reload; fi
    say "removed; containers keep running"
    say "kept: $root/etc/driftless, and $root/var/lib/driftless, from which containers may mount files"
    exit 0
fi

[ -n "$version" ] || fail "name the version: --version 1.2.3"
[ -n "$from" ] || fail "name the address of the releases: --from https://…/releases/download"
[ "$(uname -s)" = Linux ] || fail "Driftless runs on Linux"
case $(uname -m) in
x86_64 | amd64) machine=x86_64 ;;
aarch64 | arm64) machine=aarch64 ;;
*) fail "there is no release for $(uname -m)" ;;
esac
# The unit and the program of this script would hide those of the package, which apt still upgrades and removes.
if [ -e "$root/lib/systemd/system/driftless.service" ]; then
    fail "the Debian package is installed: upgrade it with apt install ./driftless_${version}_….deb, or remove it first (apt remove driftless); nothing was installed"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch() {
    url=$from/v$version/$1
    if command -v curl >/dev/null 2>&1; then
        curl --fail --silent --show-error --location --retry 3 --output "$work/$1" "$url" || fail "could not fetch $url"
    elif command -v wget >/dev/null 2>&1; then
        wget --quiet --output-document "$work/$1" "$url" || fail "could not fetch $url"
    else
        fail "needs curl or wget"
    fi
}
fetch SHA256SUMS
if [ -n "$key" ]; then
    fetch SHA256SUMS.sig
    cosign verify-blob --key "$key" --signature "$work/SHA256SUMS.sig" "$work/SHA256SUMS" >/dev/null ||
        fail "the signature of SHA256SUMS is not valid; nothing was installed"
fi
checksum() { sed -n "s/^\([0-9a-f]\{64\}\) [ *]driftless-$version-$1\.tar\.gz\$/\1/p" "$work/SHA256SUMS"; }
# unpack TARGET: fetches, verifies and unpacks an archive, and sets tree.
unpack() {
    name=driftless-$version-$1
    expected=$(checksum "$1")
    [ -n "$expected" ] || fail "SHA256SUMS does not name $name.tar.gz; nothing was installed"
    fetch "$name.tar.gz"
    found=$(sha256sum "$work/$name.tar.gz" | cut -d ' ' -f 1)
    [ "$found" = "$expected" ] || fail "the checksum of $name.tar.gz is $found instead of $expected; nothing was installed"
    tar -xzf "$work/$name.tar.gz" -C "$work" --no-same-owner
    tree=$work/$name
    [ -x "$tree/driftless" ] ||
        fail "no program can be run in $work, as on a file system that is mounted noexec: set TMPDIR to another folder; nothing was installed"
}
# runs: whether the program runs here, for example with this glibc. Sets shown.
runs() { shown=$("$tree/driftless" --version 2>"$work/error") || { shown=; return 1; }; }
unpack "$machine-unknown-linux-gnu"
if ! runs && [ -n "$(checksum "$machine-unknown-linux-musl")" ]; then
    # A static program, for hosts without glibc such as Alpine, or with an older one.
    unpack "$machine-unknown-linux-musl"
    runs || true
fi
if [ -z "$shown" ]; then
    cat "$work/error" >&2
    fail "the program of version $version does not run on this host; nothing was installed"
fi

before=
if [ -x "$program" ]; then before=$("$program" --version 2>/dev/null || echo "an unknown version"); fi
# By a rename, so that a running agent keeps its file until it is restarted.
install -D -m 755 "$tree/driftless" "$program.new"
mv -f "$program.new" "$program"
mkdir -p "$(dirname "$unit")"
# An operator may have given a group access to it.
[ -d "$root/etc/driftless" ] || install -d -m 700 "$root/etc/driftless"
sed "s|/usr/local/bin/driftless|$prefix/bin/driftless|" "$tree/driftless.service" >"$unit.new"
mv -f "$unit.new" "$unit"
install -D -m 644 "$tree/driftless.schema.json" "$share/driftless.schema.json"
install -D -m 644 "$tree/driftless.example.yaml" "$share/driftless.example.yaml"
rm -rf "$share/docs"
for page in "$tree"/docs/*.md; do
    if [ -e "$page" ]; then install -D -m 644 "$page" "$share/docs/${page##*/}"; fi
done
for page in "$tree"/man/*.1; do
    if [ -e "$page" ]; then install -D -m 644 "$page" "$man/${page##*/}"; fi
done
if [ -e "$tree/completions/driftless.bash" ]; then
    install -D -m 644 "$tree/completions/driftless.bash" "$bash"
    install -D -m 644 "$tree/completions/_driftless" "$zsh"
    install -D -m 644 "$tree/completions/driftless.fish" "$fish"
fi
if has_systemd; then
    systemctl daemon-reload
    # Containers keep running while the agent is replaced.
    systemctl try-restart driftless.service ||
        fail "$shown is installed, but driftless.service did not start again; see driftless doctor and journalctl -u driftless"
fi
if [ -n "$before" ]; then
    say "upgraded from $before to $shown"
else
    say "installed $shown in $program"
    say "next: driftless init, then systemctl enable --now driftless"
fi
