#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/spi/sink.h>

namespace outbox::redis {

/// Why no record can have a header of that name; else nothing.
[[nodiscard]] std::optional<std::string> why_not_header(std::string_view name);

/// Why no entry can carry the record; else nothing. Without allocation where there is nothing to
/// say.
[[nodiscard]] std::optional<std::string> why_not_carried(const spi::Record& record);

/// The arguments of one run of the batch script, as they are gathered. An entry has the fields
/// `id`, `key` and `value` (absent: null), and one for each header.
class Batch {
  public:
    /// Its stream was closed by a failure and is taken up again with this batch.
    void reopen(std::string_view stream);
    void add(const spi::Record& record);
    [[nodiscard]] std::size_t bytes() const { return entries_.size(); }

    struct Head {
        std::string_view script;  ///< Its SHA1, in hex.
        std::string_view session_key;
        std::string_view ids_key;
        std::int64_t session = 0;
        std::int64_t number = 0;
        std::size_t window = 0;
        std::int64_t max_len = 0;
        std::chrono::seconds keep_memory{0};
    };
    /// The whole command, to the end of `out`; this one is empty then.
    void seal(const Head& head, std::string& out);

  private:
    std::string entries_;
    std::size_t arguments_ = 0;  // in `entries_`
    std::vector<std::string> reopened_;
};

}  // namespace outbox::redis
