#!/usr/bin/env bash
# A program built with the project's Release settings is hardened. usage: hardening_test.sh SOURCE_FOLDER CXX
set -euo pipefail
source=$1 compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake -G Ninja -S "$source/tests/install/hardened" -B "$work" -DOUTBOX_SOURCE="$source" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE='-O2 -g1 -DNDEBUG -Werror' \
    -DCMAKE_CXX_COMPILER="$compiler" > "$work/log" 2>&1 && cmake --build "$work" >> "$work/log" 2>&1 ||
    { cat "$work/log" >&2; exit 1; }
elf=$(LC_ALL=C readelf -Whldsn "$work/hardened")

failed=0
shows() { grep -qE -- "$2" <<<"$elf" || { echo "not hardened: $1" >&2; failed=1; }; }
shows "PIE" '^ *Type: +DYN'
shows "PIE (flag)" 'FLAGS_1.* PIE'
shows "RELRO" '^ *GNU_RELRO '
shows "full RELRO (now)" 'FLAGS_1.* NOW'
shows "stack not executable" '^ *GNU_STACK .* RW +0x'
shows "stack protector" '__stack_chk_fail'
shows "_FORTIFY_SOURCE" '__strcpy_chk'
[ "$(uname -m)" != x86_64 ] || grep -q -- '-fcf-protection' "$work/build.ninja" ||
    { echo "not hardened: control-flow protection" >&2; failed=1; }
exit "$failed"
