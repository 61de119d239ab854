# Packages for Debian: outbox (the program and what runs it) and liboutbox-dev. script/package makes them.

# outbox_debian_packages(OUT library ...): the packages with what the libraries need for pkg-config.
function(outbox_debian_packages out)
    find_program(DPKG_QUERY dpkg-query)
    set(files "")
    set(packages "")
    foreach(library IN LISTS ARGN)
        get_property(modules TARGET ${library} PROPERTY OUTBOX_MODULES)
        foreach(module IN LISTS modules)
            pkg_get_variable(folder ${module} pcfiledir)
            list(APPEND files "${folder}/${module}.pc")
        endforeach()
    endforeach()
    list(REMOVE_DUPLICATES files)
    if(DPKG_QUERY)
        execute_process(COMMAND ${DPKG_QUERY} -S ${files} OUTPUT_VARIABLE lines ERROR_QUIET)
        string(REGEX MATCHALL "[^\n]+" lines "${lines}")
        list(TRANSFORM lines REPLACE ":.*" "" OUTPUT_VARIABLE packages)
        list(REMOVE_DUPLICATES packages)
        list(SORT packages)
    endif()
    set(${out} "${packages}" PARENT_SCOPE)
endfunction()

set(packaging "${CMAKE_SOURCE_DIR}/packaging")
install(FILES "${packaging}/man/outbox.1" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT outbox)
install(FILES "${packaging}/completions/outbox.bash"
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME outbox COMPONENT outbox)
install(FILES "${packaging}/completions/outbox.fish"
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT outbox)
install(FILES "${packaging}/completions/outbox.zsh"
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions RENAME _outbox COMPONENT outbox)
install(FILES "${packaging}/systemd/outbox-relay@.service" DESTINATION lib/systemd/system COMPONENT outbox)
install(FILES "${packaging}/prometheus/outbox.rules.yml" "${packaging}/grafana/outbox.json"
              "${CMAKE_SOURCE_DIR}/outbox.example.toml" "${CMAKE_SOURCE_DIR}/LICENSE"
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT outbox)
install(DIRECTORY "${packaging}/container" "${packaging}/helm" "${packaging}/kubernetes"
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT outbox)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_SOURCE_DIR}/build")
set(CPACK_PACKAGE_CONTACT "The engineers of Outbox")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL outbox dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION database)
set(CPACK_DEBIAN_OUTBOX_PACKAGE_NAME outbox)
set(CPACK_DEBIAN_OUTBOX_DESCRIPTION "carries every committed event from a database to its brokers
 The relay of transactional outboxes in PostgreSQL and SQLite: to Kafka, RabbitMQ,
 NATS, Redis, Pulsar, MQTT, SQS, SNS, webhooks and other databases.")
set(CPACK_DEBIAN_OUTBOX_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_OUTBOX_PACKAGE_CONTROL_EXTRA "${packaging}/debian/postinst;${packaging}/debian/prerm")
set(CPACK_DEBIAN_OUTBOX_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME liboutbox-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
# Of brokers and HTTP a service needs what its own components need.
outbox_debian_packages(always outbox_producer outbox_consumer outbox_saga)
outbox_debian_packages(suggested ${libraries})
list(REMOVE_ITEM suggested ${always})
list(JOIN always ", " CPACK_DEBIAN_DEV_PACKAGE_DEPENDS)
list(JOIN suggested ", " CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS)
set(CPACK_DEBIAN_DEV_DESCRIPTION "library of transactional outboxes, inboxes and sagas
 For C++20 services: events within their own transactions, repeats dropped on
 arrival, Idempotency-Key, sagas.")
include(CPack)
