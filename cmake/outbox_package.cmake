# Packages for Debian: outbox (the program and what runs it) and liboutbox-dev. script/package makes them.

set(packaging "${CMAKE_SOURCE_DIR}/packaging")
install(FILES "${packaging}/man/outbox.1" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT outbox)
install(FILES "${packaging}/completions/outbox.bash"
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME outbox COMPONENT outbox)
install(FILES "${packaging}/completions/outbox.fish"
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT outbox)
install(FILES "${packaging}/systemd/outbox-relay@.service" DESTINATION lib/systemd/system COMPONENT outbox)
install(FILES "${packaging}/prometheus/outbox.rules.yml" "${packaging}/grafana/outbox.json"
              "${CMAKE_SOURCE_DIR}/outbox.example.toml" "${CMAKE_SOURCE_DIR}/LICENSE"
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
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libcurl4-openssl-dev, libhiredis-dev, libpq-dev, librabbitmq-dev, librdkafka-dev, libsqlite3-dev, libssl-dev")
set(CPACK_DEBIAN_DEV_DESCRIPTION "library of transactional outboxes, inboxes and sagas
 For C++20 services: events within their own transactions, repeats dropped on
 arrival, Idempotency-Key, sagas.")
include(CPack)
