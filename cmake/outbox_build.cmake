# Compiler settings and the two functions every folder builds with.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()

# g++ 12 sees overlaps in plain string concatenation that are not there (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    set(OUTBOX_WARNING_EXCEPTIONS -Wno-restrict)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # What librdkafka's macros and libstdc++'s stable_sort are made of.
    set(OUTBOX_WARNING_EXCEPTIONS -Wthread-safety -Wno-gnu-statement-expression-from-macro-expansion
        -Wno-deprecated-declarations)
endif()

find_program(CCACHE ccache)
if(CCACHE)
    # As precompiled headers ask for.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        add_compile_options(-fpch-preprocess)
    endif()
endif()
find_program(MOLD mold)
if(MOLD)
    add_link_options(-fuse-ld=mold)
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

if(OUTBOX_SANITIZE)
    add_compile_options(-fsanitize=${OUTBOX_SANITIZE} -fno-omit-frame-pointer
                        -fno-sanitize-recover=all)
    if(OUTBOX_SANITIZE MATCHES undefined)
        # Half of the time of compiling, for what AddressSanitizer sees, too; the fuzz targets, which
        # read the bytes of others, check all.
        add_compile_options(-fno-sanitize=null,alignment,object-size,vptr)
    endif()
    add_link_options(-fsanitize=${OUTBOX_SANITIZE})
elseif(NOT OUTBOX_FUZZ)
    # Hardened, as tests/install/hardened.sh checks; sanitizers bring checks of their own.
    include(CheckPIESupported)
    check_pie_supported()
    add_compile_options(-fstack-protector-strong)
    # Needs optimisation; undefined first, as compilers of some distributions define it.
    add_compile_options("$<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
        add_compile_options(-fcf-protection)
    endif()
    add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
endif()

# Compiles the files of a folder as one, which takes a third of the time. Not for the release, which
# shows that each file includes what it needs, nor for the linter.
option(OUTBOX_UNITY "Compile the files of a folder as one" OFF)

# Headers that nearly every file reads. Those of third parties that cost more than a second stay in
# few files: Beast, spdlog, toml++, CLI11, nlohmann-json.
set(OUTBOX_STANDARD_HEADERS
    <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <deque> <functional> <map>
    <memory> <mutex> <optional> <random> <set> <span> <sstream> <string> <string_view> <thread>
    <unordered_map> <unordered_set> <utility> <variant> <vector>)

# outbox_precompiled(TARGET KIND [HEADERS header ...] [LINK library ...]): gives it what KIND
# precompiles: the standard headers and these, which are those libraries'. Targets of one kind are
# compiled with the same options, optimisation among them. Only beside OUTBOX_UNITY: the release shows
# that each file includes what it needs, and g++ 12, where it optimises, warns of the insides of
# precompiled headers as it does not of others'.
function(outbox_precompiled target kind)
    if(NOT OUTBOX_UNITY)
        return()
    endif()
    cmake_parse_arguments(ARG "" "" "HEADERS;LINK" ${ARGN})
    set(donor outbox_precompiled_${kind})
    if(NOT TARGET ${donor})
        file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/${donor}.cpp" CONTENT "int main() {}\n")
        get_target_property(type ${target} TYPE)
        if(type STREQUAL "EXECUTABLE")
            add_executable(${donor} "${CMAKE_BINARY_DIR}/${donor}.cpp")
        else()
            add_library(${donor} OBJECT "${CMAKE_BINARY_DIR}/${donor}.cpp")
        endif()
        get_target_property(options ${target} COMPILE_OPTIONS)
        target_compile_options(${donor} PRIVATE ${options})
        target_link_libraries(${donor} PRIVATE ${ARG_LINK})
        target_precompile_headers(${donor} PRIVATE ${OUTBOX_STANDARD_HEADERS} ${ARG_HEADERS})
    endif()
    target_precompile_headers(${target} REUSE_FROM ${donor})
endfunction()

# outbox_alone(FILE ...): compiled alone, as they keep a name to themselves that another file of the
# folder has, too.
function(outbox_alone)
    list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    set_property(GLOBAL APPEND PROPERTY OUTBOX_ALONE ${ARGN})
endfunction()

# outbox_unity(TARGET): at the end of the configuration, when the target has all its files.
function(outbox_unity target)
    if(OUTBOX_UNITY)
        cmake_language(EVAL CODE "cmake_language(DEFER DIRECTORY [[${CMAKE_SOURCE_DIR}]]
            CALL outbox_group_by_folder ${target})")
    endif()
endfunction()

function(outbox_group_by_folder target)
    get_target_property(folder ${target} SOURCE_DIR)
    get_target_property(sources ${target} SOURCES)
    get_property(alone GLOBAL PROPERTY OUTBOX_ALONE)
    foreach(source IN LISTS sources)
        cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${folder}" NORMALIZE)
        cmake_path(GET source PARENT_PATH group)
        cmake_path(RELATIVE_PATH group BASE_DIRECTORY "${CMAKE_SOURCE_DIR}")
        if(source IN_LIST alone)
            continue()
        endif()
        string(MAKE_C_IDENTIFIER "${group}" group)
        set_source_files_properties("${source}" TARGET_DIRECTORY ${target}
                                    PROPERTIES UNITY_GROUP ${group})
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# outbox_library(NAME [HOT] [COMPONENT] [PRECOMPILE header ...] SOURCES a.cpp ... [DEPENDS target ...]
#                [PRIVATE_DEPENDS target ...])
# HOT: optimised also for the sanitizers, whose tests keep it busy. COMPONENT: services link it, so it
# is installed, with what it depends on (outbox_install.cmake). PRECOMPILE: heavy headers that most of
# its files read.
function(outbox_library name)
    cmake_parse_arguments(ARG "HOT;COMPONENT" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS;PRECOMPILE" ${ARGN})
    add_library(${name} STATIC ${ARG_SOURCES})
    if(ARG_COMPONENT)
        set_property(GLOBAL APPEND PROPERTY OUTBOX_COMPONENTS ${name})
    endif()
    set_property(TARGET ${name} PROPERTY OUTBOX_LINKS ${ARG_DEPENDS} ${ARG_PRIVATE_DEPENDS})
    target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
                           ${OUTBOX_WARNING_EXCEPTIONS})
    target_include_directories(${name} PUBLIC
        $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
        PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
    outbox_unity(${name})
    if(ARG_HOT AND OUTBOX_SANITIZE MATCHES address)
        target_compile_options(${name} PRIVATE -O1)
    elseif(ARG_PRECOMPILE)
        outbox_precompiled(${name} library_${name} HEADERS ${ARG_PRECOMPILE})
    else()
        outbox_precompiled(${name} library)
    endif()
endfunction()

# outbox_part(TARGET SOURCES a.cpp ... [LINK library ...]): what a backend adds to a library of the middle.
function(outbox_part target)
    cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
    list(TRANSFORM ARG_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" REGEX "^[^/]")
    target_sources(${target} PRIVATE ${ARG_SOURCES})
    target_link_libraries(${target} PRIVATE ${ARG_LINK})
    set_property(TARGET ${target} APPEND PROPERTY OUTBOX_LINKS ${ARG_LINK})
    # Services see the headers of the client in those of include/outbox/adapters/.
    foreach(library IN LISTS ARG_LINK)
        if(library MATCHES "^PkgConfig::")
            target_link_libraries(${target} INTERFACE $<INSTALL_INTERFACE:${library}>)
        endif()
    endforeach()
endfunction()

# outbox_backend(database|broker NAME [TARGET]): what a folder of a wing exports, as
# src/backend/database.h and broker.h say. Without a target its client library was not there.
function(outbox_backend kind name)
    set_property(GLOBAL APPEND PROPERTY OUTBOX_BACKENDS ${kind}:${name}:${ARGN})
    if(NOT ARGN)
        message(STATUS "${name} is left out: its client library was not found")
    endif()
endfunction()

# outbox_backends(PROGRAM): gives it the backends of all folders so far.
function(outbox_backends program)
    get_property(backends GLOBAL PROPERTY OUTBOX_BACKENDS)
    foreach(backend IN LISTS backends)
        string(REGEX MATCH "^(.+):(.+):(.*)$" matched "${backend}")
        set(kind ${CMAKE_MATCH_1})
        set(name ${CMAKE_MATCH_2})
        set(target ${CMAKE_MATCH_3})
        if(NOT target)
            string(APPEND left_out "\"${name}\", ")
            continue()
        endif()
        target_link_libraries(${program} PRIVATE ${target})
        string(SUBSTRING ${kind} 1 -1 type)
        string(SUBSTRING ${kind} 0 1 initial)
        string(TOUPPER ${initial} initial)
        string(APPEND declarations "const ${initial}${type}& ${name}_${kind}();\n")
        string(APPEND ${kind}_list "&${name}_${kind}(), ")
    endforeach()
    set(file "${CMAKE_CURRENT_BINARY_DIR}/${program}_backends.cpp")
    configure_file("${CMAKE_SOURCE_DIR}/cmake/backends.cpp.in" "${file}" @ONLY)
    target_sources(${program} PRIVATE "${file}")
    target_include_directories(${program} PRIVATE "${CMAKE_SOURCE_DIR}/src")
endfunction()

# outbox_test(NAME [HOT] [LONG] SOURCES a.cpp ... [DEPENDS target ...] [LABELS label ...])
# LABELS: unit (no server), server (starts real servers), broker (no PostgreSQL among them: not
# repeated with its other versions), full (long), relay (also run under
# TSan), threads (the same with --long); nothing of these talks to Kafka, as g++ 12 cannot follow the
# C11 threads of librdkafka.
# HOT: as for libraries. LONG: takes a minute or more, so it is begun before the others.
function(outbox_test name)
    cmake_parse_arguments(ARG "HOT;LONG" "" "SOURCES;DEPENDS;LABELS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Werror
                           ${OUTBOX_WARNING_EXCEPTIONS})
    set(kind unit_test)
    if(ARG_HOT AND OUTBOX_SANITIZE MATCHES address)
        set(kind)
        target_compile_options(${name} PRIVATE -O1)
    elseif(OUTBOX_SANITIZE MATCHES undefined AND "server" IN_LIST ARG_LABELS)
        # What they test keeps all checks; unit tests instantiate some of it.
        set(kind server_test)
        target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
    endif()
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gmock
                                          GTest::gtest_main Threads::Threads)
    if(kind)
        outbox_precompiled(${name} ${kind} HEADERS <gmock/gmock.h> <gtest/gtest.h>
                           LINK GTest::gtest GTest::gmock)
    endif()
    add_test(NAME ${name} COMMAND ${name})
    # gtest: it leaves a report, which script/test counts.
    # Several times what the slowest takes where nothing else runs.
    set_tests_properties(${name} PROPERTIES TIMEOUT 1200 LABELS "gtest;${ARG_LABELS}")
    if(ARG_LONG)
        set_tests_properties(${name} PROPERTIES COST 100)
    endif()
endfunction()
