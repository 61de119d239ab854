#!/usr/bin/env bash
# Installs the library into an empty prefix and builds programs against it, once by find_package and
# once by pkg-config: one that only emits, one with all, and one for each header of adapters/ and each
# component. usage: install_test.sh BUILD_FOLDER SOURCE_FOLDER CXX CXX_FLAGS
set -euo pipefail
build=$1 source=$2 compiler=$3 flags=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "$*" >&2
    exit 1
}
emits_an_event() {
    local id
    id=$("$1" "$work/$2.db")
    [ "$(sqlite3 "$work/$2.db" "SELECT id || topic || payload FROM outbox_events")" = \
      "${id}greetings{\"text\": \"hello\"}" ] || fail "$2: the event is not there"
}
# build_program FOLDER NAME [CMAKE OPTION...]
build_program() {
    local folder=$1 name=$2
    shift 2
    cmake -G Ninja -S "$source/tests/install/$folder" -B "$work/$name" -DCMAKE_PREFIX_PATH="$work/moved" \
        -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$flags" "$@" > "$work/$name.log" 2>&1 &&
        cmake --build "$work/$name" >> "$work/$name.log" 2>&1
}
# by_pkg_config SOURCE PROGRAM MODULE...
by_pkg_config() {
    local file=$1 program=$2
    shift 2
    # shellcheck disable=SC2046,SC2086
    "$compiler" -std=c++20 $flags "$source/tests/install/$file" $(pkg-config --cflags --libs "$@") -o "$program"
}

cmake --install "$build" --prefix "$work/prefix" > "$work/install.log"
# Nothing may point back into the tree: a moved prefix must work.
mv "$work/prefix" "$work/moved"
if grep -rlI -e "$source" -e "$build" "$work/moved"; then
    fail "the installed files above name the source tree"
fi
PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -name outbox.pc)")
export PKG_CONFIG_PATH
if find "$work/moved" -name '*.a' | grep -E '_(relay|sink|source)'; then
    fail "what only relays link is installed"
fi

# What only emits needs its databases' libraries and no other: here none can be found.
mkdir "$work/modules"
for module in libpq sqlite3 $(pkg-config --print-requires-private libpq sqlite3); do
    ln -s "$(pkg-config --variable=pcfiledir "$module")/$module.pc" "$work/modules/"
done
(
    export PKG_CONFIG_LIBDIR=$work/modules
    without=(-DCMAKE_DISABLE_FIND_PACKAGE_CURL=ON -DCMAKE_DISABLE_FIND_PACKAGE_OpenSSL=ON)
    build_program emitter emitter "${without[@]}" "-DCOMPONENTS=producer;OPTIONAL_COMPONENTS;consumer_kafka" || fail "$(cat "$work/emitter.log")"
    by_pkg_config emitter/main.cpp "$work/emitter/by_pkg_config" outbox_producer
    for program in emitter by_pkg_config; do
        emits_an_event "$work/emitter/$program" "emit_$program"
        # Beside the databases': the compiler's, the C library's, the sanitizers'.
        if LC_ALL=C readelf -d "$work/emitter/$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE \
            '^(libpq|libsqlite3|libstdc\+\+|libm|libgcc_s|libc|ld-linux[^.]*|librt|libdl|libpthread|libresolv|lib[atu]b?san)\.so'; then
            fail "a program that only emits needs the libraries above ($program)"
        fi
    done
    for lack in 'consumer_kafka needs .*rdkafka' 'claim_s3 needs .*CURL' 'unheard_of needs a build of outbox with it'; do
        ! build_program emitter refused "${without[@]}" -DCOMPONENTS="producer;${lack%% *}" ||
            fail "found, and $lack"
        tr -s ' \n' ' ' < "$work/refused.log" | grep -q "$lack" ||
            fail "nothing says that $lack: $(cat "$work/refused.log")"
    done
)

# A broker's folder alone makes a component.
build_program parrot parrot -DOUTBOX_SOURCE="$source" -DCMAKE_INSTALL_PREFIX="$work/nest" &&
    cmake --install "$work/parrot" >> "$work/parrot.log" 2>&1 &&
    build_program parrot/user parrot_user -DCMAKE_PREFIX_PATH="$work/nest" ||
    fail "$(cat "$work"/parrot*.log)"
"$work/parrot_user/user"
by_pkg_config parrot/user/main.cpp "$work/heard" "$(find "$work/nest" -name outbox_consumer_parrot.pc)"
"$work/heard"
for program in "$work/parrot_user/user" "$work/heard"; do
    LC_ALL=C readelf -d "$program" | grep -q 'NEEDED.*libhiredis' || fail "what a component needs is not linked"
done

build_program project all || fail "$(cat "$work/all.log")"
emits_an_event "$work/all/outside" find_package
by_pkg_config project/main.cpp "$work/by_pkg_config" outbox
emits_an_event "$work/by_pkg_config" pkg_config

programs=$source/tests/install/project/adapters
for header in "$work"/moved/include/outbox/adapters/*.h; do
    name=$(basename "$header" .h)
    [ -e "$programs/$name.cpp" ] || fail "no program for adapters/$name.h"
done
config=$(find "$work/moved" -name outboxConfig.cmake)
for component in $(sed -n 's/^set(outbox_components \(.*\))$/\1/p' "$config"); do
    grep -q "outbox::$component\>" "$programs"/*.cpp || fail "no program for the component $component"
done
for file in "$programs"/*.cpp; do
    name=$(basename "$file" .cpp)
    "$work/all/with_$name"
    libraries=outbox_$(sed -n '1s/.*outbox::\([a-z0-9_]*\).*/\1/p' "$file")
    [ "$name" != libpqxx ] || libraries="$libraries libpqxx"
    # shellcheck disable=SC2086
    by_pkg_config "project/adapters/$name.cpp" "$work/with_$name" $libraries
    "$work/with_$name"
done
