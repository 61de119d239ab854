#!/usr/bin/env bash
# Installs the library into an empty prefix and builds a program against it, and one for each header
# of adapters/, once by find_package and once by pkg-config. usage: install_test.sh BUILD_FOLDER SOURCE_FOLDER CXX CXX_FLAGS
set -euo pipefail
build=$1 source=$2 compiler=$3 flags=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

emits_an_event() {
    local id
    id=$("$1" "$work/$2.db")
    [ "$(sqlite3 "$work/$2.db" "SELECT id || topic || payload FROM outbox_events")" = \
      "${id}greetings{\"text\": \"hello\"}" ] || { echo "$2: the event is not there" >&2; exit 1; }
}

cmake --install "$build" --prefix "$work/prefix" > "$work/install.log"
# Nothing may point back into the tree: a moved prefix must work.
mv "$work/prefix" "$work/moved"
if grep -rlI -e "$source" -e "$build" "$work/moved"; then
    echo "the installed files above name the source tree" >&2
    exit 1
fi

cmake -G Ninja -S "$source/tests/install/project" -B "$work/build" \
    -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$flags" > "$work/configure.log"
cmake --build "$work/build" > "$work/build.log" || { cat "$work/build.log" >&2; exit 1; }
emits_an_event "$work/build/outside" find_package

pc=$(dirname "$(find "$work/moved" -name outbox.pc)")
# shellcheck disable=SC2046,SC2086
PKG_CONFIG_PATH=$pc "$compiler" -std=c++20 $flags "$source/tests/install/project/main.cpp" \
    $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs outbox) -o "$work/by_pkg_config"
emits_an_event "$work/by_pkg_config" pkg_config

for header in "$work"/moved/include/outbox/adapters/*.h; do
    name=$(basename "$header" .h)
    "$work/build/with_$name" || { echo "no program for adapters/$name.h" >&2; exit 1; }
    libraries=outbox
    [ "$name" != libpqxx ] || libraries="outbox libpqxx"
    # shellcheck disable=SC2046,SC2086
    PKG_CONFIG_PATH=$pc "$compiler" -std=c++20 $flags \
        "$source/tests/install/project/adapters/$name.cpp" \
        $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs $libraries) -o "$work/with_$name"
    "$work/with_$name"
done
