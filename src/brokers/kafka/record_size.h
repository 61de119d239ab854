#pragma once

#include <cstddef>

#include <outbox/spi/sink.h>

namespace outbox::kafka {

/// Bytes of an uncompressed batch that holds only this record: what a broker compares with the
/// topic's `max.message.bytes`. Source: Kafka's protocol guide, "Record Batch", magic 2.
std::size_t record_batch_bytes(const spi::Record& record);

}  // namespace outbox::kafka
