#pragma once

#include <cstddef>

#include <outbox/spi/sink.h>

namespace outbox {

/// Key, value and headers: what a record holds in memory until its outcome is known, without fixed
/// overhead, and what counts against a sink's limits.
[[nodiscard]] inline std::size_t payload_bytes(const spi::Record& record) {
    std::size_t bytes = record.key.size() + record.value.size();
    for (const spi::HeaderView& header : record.headers) {
        bytes += header.name.size() + header.value.size();
    }
    return bytes;
}

}  // namespace outbox
