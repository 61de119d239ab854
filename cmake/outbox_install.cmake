# Installs the library for programs outside this tree: find_package(outbox) and pkg-config.

# What users link; the order is the one a linker needs. Parts that are not built are left out.
set(installed_parts "")
foreach(part outbox_saga outbox_consumer_kafka outbox_kafka outbox_consumer_rabbitmq outbox_rabbitmq
        outbox_consumer_redis outbox_redis outbox_consumer_nats outbox_nats outbox_consumer
        outbox_claim_s3 outbox_claim outbox_tracing_otlp outbox_tracing outbox_net_http outbox_net_socket outbox_net_hash
        outbox_producer outbox_postgres outbox_sqlite
        outbox_net outbox_secrets outbox_core)
    if(TARGET ${part})
        list(APPEND installed_parts ${part})
    endif()
endforeach()

if(TARGET outbox_consumer_kafka)
    set(find_rdkafka "pkg_check_modules(RDKAFKA QUIET REQUIRED IMPORTED_TARGET rdkafka)")
    set(requires_rdkafka " rdkafka")
endif()

if(TARGET outbox_consumer_rabbitmq)
    set(find_rabbitmq "pkg_check_modules(RABBITMQ QUIET REQUIRED IMPORTED_TARGET librabbitmq)")
    set(requires_rabbitmq " librabbitmq")
endif()

if(TARGET outbox_consumer_redis)
    set(find_redis "pkg_check_modules(HIREDIS QUIET REQUIRED IMPORTED_TARGET hiredis)")
    set(requires_redis " hiredis")
endif()

# For hashes, and where a broker's client speaks TLS.
set(find_tls "find_package(OpenSSL REQUIRED)")
set(requires_tls " libssl libcrypto")

if(TARGET outbox_claim_s3)
    set(find_curl "find_package(CURL REQUIRED)")
    set(requires_curl " libcurl")
endif()

pkg_check_modules(LIBPQ REQUIRED IMPORTED_TARGET libpq)
pkg_check_modules(SQLITE3 REQUIRED IMPORTED_TARGET sqlite3)
add_library(liboutbox INTERFACE)
# The parts link these privately, but their adapters' headers show them.
target_link_libraries(liboutbox INTERFACE ${installed_parts} PkgConfig::LIBPQ PkgConfig::SQLITE3)
set_target_properties(liboutbox PROPERTIES EXPORT_NAME outbox)
add_library(outbox::outbox ALIAS liboutbox)

install(TARGETS liboutbox ${installed_parts} EXPORT outbox_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/outbox" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/outbox)
install(EXPORT outbox_targets NAMESPACE outbox:: DESTINATION ${config_folder})

include(CMakePackageConfigHelpers)
configure_package_config_file(
    "${CMAKE_SOURCE_DIR}/cmake/outboxConfig.cmake.in" "${CMAKE_BINARY_DIR}/outboxConfig.cmake"
    INSTALL_DESTINATION ${config_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/outboxConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/outboxConfig.cmake"
              "${CMAKE_BINARY_DIR}/outboxConfigVersion.cmake"
        DESTINATION ${config_folder})

list(TRANSFORM installed_parts PREPEND "-l" OUTPUT_VARIABLE library_flags)
list(JOIN library_flags " " library_flags)
# Relative, so that an installed tree may be moved.
file(RELATIVE_PATH prefix_from_pkgconfig "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
configure_file("${CMAKE_SOURCE_DIR}/cmake/outbox.pc.in" "${CMAKE_BINARY_DIR}/outbox.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/outbox.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
