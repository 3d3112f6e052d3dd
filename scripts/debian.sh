#!/bin/sh
# Unpacks packages of another Debian release into the folder DIR, which must not be there yet, and installs nothing:
# by an apt of its own, so that the system's lists and packages are left as they are. It asks this machine's mirror.
#
#   scripts/debian.sh [--with-dependencies] RELEASE DIR PACKAGE...
set -eu

fail() { echo "debian: $*" >&2; exit 1; }
how=alone
if [ "${1-}" = --with-dependencies ]; then
    how=whole
    shift
fi
[ $# -ge 3 ] || { echo "usage: $0 [--with-dependencies] RELEASE DIR PACKAGE..." >&2; exit 2; }
release=$1 dir=$2
shift 2

keys=/usr/share/keyrings/debian-archive-keyring.gpg
if ! command -v apt-get >/dev/null 2>&1 || [ ! -e "$keys" ]; then fail "Debian's packages cannot be had here"; fi
# Next to DIR, so that it appears there all at once.
mkdir -p "$(dirname "$dir")"
parent=$(cd "$(dirname "$dir")" && pwd)
apt=$(mktemp -d "$parent/.debian.XXXXXX")
trap 'rm -rf "$apt"' EXIT
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/root"
: >"$apt/status"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)
echo "deb [signed-by=$keys] ${mirror:-https://deb.debian.org/debian/} $release main" >"$apt/list"
cat >"$apt/conf" <<CONF
Dir::Etc::sourcelist "$apt/list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Cache::archives "$apt/archives";
APT::Sandbox::User "root";
Acquire::Languages "none";
CONF
export APT_CONFIG="$apt/conf"
cd "$apt/archives"
apt-get -qq update >/dev/null || fail "the lists of $release cannot be fetched"
# As if nothing were installed: all that a package needs comes with it.
case $how in
whole) apt-get -qq -y --no-install-recommends --download-only install "$@" ;;
alone) apt-get -qq download "$@" ;;
esac >/dev/null 2>&1 || fail "$* of $release cannot be fetched"
for package in "$apt"/archives/*.deb; do dpkg -x "$package" "$apt/root"; done
cd "$parent"
mv "$apt/root" "$(basename "$dir")"
