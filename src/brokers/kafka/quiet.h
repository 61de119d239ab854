#pragma once

#include <librdkafka/rdkafka.h>

namespace outbox::kafka {

/// What matters is told by events and callbacks: librdkafka's own lines are for debugging.
inline void be_quiet(rd_kafka_conf_t* conf) {
    rd_kafka_conf_set_log_cb(conf, [](const rd_kafka_t*, int, const char*, const char*) {});
}

}  // namespace outbox::kafka
