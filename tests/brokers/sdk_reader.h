#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace outbox::test {

/// A message as an independent client of its broker saw it.
struct WireMessage {
    std::vector<std::pair<std::string, std::string>> headers;
    std::optional<std::string> key;
    std::string value;
    std::string content_type;  // of the protocol's own property
};

/// What the official SDK of CloudEvents makes of it: {"attributes": {...}, "data": ...}. `binding`:
/// kafka, http or amqp. Throws where it takes it for none.
nlohmann::json read_by_sdk(const std::string& binding, const WireMessage& message);

}  // namespace outbox::test
