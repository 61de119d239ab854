#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/spi/sink.h>

namespace outbox::nats {

inline constexpr std::string_view kIdHeader = "Nats-Msg-Id";
inline constexpr std::string_view kStreamHeader = "Nats-Expected-Stream";
/// NATS has neither: the key, and whether the value is null.
inline constexpr std::string_view kKeyHeader = "outbox-key";
inline constexpr std::string_view kNullHeader = "outbox-null";

/// Why no record can have a header of that name; else nothing.
[[nodiscard]] std::optional<std::string> why_not_header(std::string_view name);

/// Why no message can carry the record; else nothing. Without allocation where there is nothing to
/// say.
[[nodiscard]] std::optional<std::string> why_not_carried(const spi::Record& record);

/// The header lines of the record's message, into `out`. `suffix`: of its id; empty: it is given
/// none. `stream`: the one that is to take it; empty: whichever does.
void write_headers(const spi::Record& record, std::string_view suffix, std::string_view stream,
                   std::string& out);

}  // namespace outbox::nats
