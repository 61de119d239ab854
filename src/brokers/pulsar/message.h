#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/spi/sink.h>

namespace outbox::pulsar {

/// Why no message can carry the record; else nothing.
[[nodiscard]] std::optional<std::string> why_not_carried(const spi::Record& record);

/// The key as messages have it: UTF-8 as it is, other bytes as Base64, as the Java client does.
struct KeyText {
    std::string_view text;  ///< Null: there is none. Views the record, or `storage`.
    bool encoded = false;
};
[[nodiscard]] KeyText key_text(const spi::Record& record, std::string& storage);

/// Who sends it, and when.
struct Origin {
    std::string_view producer;
    std::uint64_t sequence = 0;  ///< Of the message, or of the first of the batch.
    std::int64_t now_ms = 0;     ///< Since the Unix epoch.
};

/// Appends the metadata of a message alone; its payload is the record's value.
void append_metadata(const Origin& origin, const spi::Record& record, std::string& out);

/// Appends the metadata of a batch of `count` messages.
void append_batch_metadata(const Origin& origin, std::uint32_t count, std::size_t payload_bytes,
                           std::string& out);
/// Appends one message to the payload of a batch.
void append_to_batch(std::uint64_t sequence, const spi::Record& record, std::string& out);

}  // namespace outbox::pulsar
