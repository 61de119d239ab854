# Sourced by the scripts beside it: messages, places, packages.
# shellcheck shell=bash

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CACHE=${OUTBOX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/outbox-servers}
# Without a version Maven takes the newest plugin there is; -C refuses what does not match its checksum.
# shellcheck disable=SC2034
MAVEN_DEPENDENCY=org.apache.maven.plugins:maven-dependency-plugin:3.6.1
JOBS=${OUTBOX_JOBS:-$(nproc)}
# Tests mostly wait for servers.
# shellcheck disable=SC2034
TEST_JOBS=${OUTBOX_TEST_JOBS:-$((JOBS * 2))}

note() { printf '== %s\n' "$*" >&2; }
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# packages_of GROUP: the names listed under [GROUP] in packages.txt.
packages_of() {
    awk -v group="[$1]" '/^\[/ { inside = ($0 == group); next } inside && /^[a-z0-9]/ { print $1 }' \
        "$ROOT/packages.txt"
}

# missing_packages NAME...: those that are not installed, nor provided by one that is (a Node from
# elsewhere brings its npm, which Debian's would conflict with).
missing_packages() {
    local known installed
    known=$(dpkg-query -W -f '${db:Status-Status},${Package},${Provides}
') ||
        die "dpkg-query cannot say what is installed; this needs Debian 12"
    installed=$(awk -F ', *' '$1 == "installed" {
        for (i = 2; i <= NF; i++) { sub(/ .*/, "", $i); print $i } }' <<<"$known")
    LC_ALL=C comm -23 <(printf '%s
' "$@" | LC_ALL=C sort -u) <(LC_ALL=C sort -u <<<"$installed")
}

# as_root COMMAND...: runs it as root, through sudo where we are not.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "installing packages needs root and there is no sudo; run script/setup as root first"
    fi
}

# configure FOLDER [CMAKE OPTION...]
configure() {
    local folder=$1
    shift
    # A cache made in another folder (a moved or copied checkout) would build over there.
    if ! grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$ROOT" "$folder/CMakeCache.txt"; then
        rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles"
    fi
    cmake -S "$ROOT" -B "$folder" -G Ninja --log-level=WARNING "$@" >&2
}

# configure_and_build FOLDER [CMAKE OPTION...] [-- TARGET...]
configure_and_build() {
    local folder=$1 options=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    [ $# -eq 0 ] || shift
    configure "$folder" "${options[@]}" &&
        cmake --build "$folder" -j "$JOBS" ${1+--target "$@"} >&2
}

# shellcheck disable=SC2034
RELEASE_OPTIONS_CMAKE=(-DCMAKE_BUILD_TYPE=Release '-DCMAKE_CXX_FLAGS_RELEASE=-O2 -g1 -DNDEBUG')

# clang takes half of g++'s time for an unoptimised build. The first is what tests and lint share.
CLANG=(-DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19)
SANITIZED=("${CLANG[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo
    '-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0 -g1' -DOUTBOX_TESTS=ON -DOUTBOX_UNITY=ON)
# shellcheck disable=SC2034
ASAN_OPTIONS_CMAKE=("${SANITIZED[@]}" -DOUTBOX_SANITIZE=address,undefined)
# shellcheck disable=SC2034
TSAN_OPTIONS_CMAKE=("${SANITIZED[@]}" -DOUTBOX_SANITIZE=thread)
# shellcheck disable=SC2034
FUZZ_OPTIONS_CMAKE=("${CLANG[@]}" -DOUTBOX_FUZZ=ON -DOUTBOX_UNITY=ON)
