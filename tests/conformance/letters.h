#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/courier.h"

namespace outbox::test {

/// A record as it arrived.
struct Arrived {
    std::string id;
    std::optional<std::string> key;
    std::optional<std::string> value;
    std::vector<std::pair<std::string, std::string>> headers;
};

/// Letters `id-0`, `id-1`, ... that take turns with the keys `key-0`, `key-1`, ...
std::vector<Letter> letters(const std::string& topic, std::size_t count, std::size_t keys,
                            std::size_t value_bytes = 20);

/// Empty when the first occurrence of every letter arrived, in the order of its key; else the
/// first place where it did not.
std::string missing_or_reordered(const std::vector<Letter>& sent,
                                 const std::vector<Arrived>& arrived);

}  // namespace outbox::test
