#!/usr/bin/env bash
# A program built as script/build builds the release is hardened. usage: hardening_test.sh SOURCE_FOLDER
. "$1/script/lib/common.sh"
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake -G Ninja -S "$source/tests/install/hardened" -B "$work" -DOUTBOX_SOURCE="$source" \
    "${RELEASE_OPTIONS_CMAKE[@]}" -DCMAKE_CXX_FLAGS=-Werror > "$work/log" 2>&1 &&
    cmake --build "$work" >> "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
"$source/tests/install/hardened.sh" "$work/hardened"
