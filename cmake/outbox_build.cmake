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
endif()

find_program(CCACHE ccache)
if(CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
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
    add_link_options(-fsanitize=${OUTBOX_SANITIZE})
elseif(NOT OUTBOX_FUZZ)
    # Hardened, as tests/install/hardening_test.sh checks; sanitizers bring checks of their own.
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

# outbox_library(NAME SOURCES a.cpp ... [DEPENDS target ...] [PRIVATE_DEPENDS target ...])
function(outbox_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
    add_library(${name} STATIC ${ARG_SOURCES})
    target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
                           ${OUTBOX_WARNING_EXCEPTIONS})
    target_include_directories(${name} PUBLIC
        $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
        PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
endfunction()

# outbox_part(TARGET SOURCES a.cpp ... [LINK library ...]): what a backend adds to a library of the middle.
function(outbox_part target)
    cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
    list(TRANSFORM ARG_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" REGEX "^[^/]")
    target_sources(${target} PRIVATE ${ARG_SOURCES})
    target_link_libraries(${target} PRIVATE ${ARG_LINK})
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

# The code of tests that talk to servers is most of what is compiled; what they test keeps all checks.
# Unit tests, which instantiate what they test, are built like it.
set(OUTBOX_LIGHT_TEST -O0 -fno-sanitize=undefined)

# outbox_test(NAME SOURCES a.cpp ... [DEPENDS target ...] [LABELS label ...])
# LABELS: unit (no server), server (starts real servers), full (long), relay (also run under TSan;
# nothing that talks to Kafka, as g++ 12 cannot follow the C11 threads of librdkafka).
function(outbox_test name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LABELS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Werror
                           ${OUTBOX_WARNING_EXCEPTIONS})
    if(OUTBOX_SANITIZE MATCHES undefined AND "server" IN_LIST ARG_LABELS)
        target_compile_options(${name} PRIVATE ${OUTBOX_LIGHT_TEST})
    endif()
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gmock
                                          GTest::gtest_main Threads::Threads)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS "${ARG_LABELS}")
endfunction()
