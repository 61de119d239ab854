#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/spi/sink.h>

namespace outbox::mqtt {

/// MQTT has neither: the key, and whether the value is null.
inline constexpr std::string_view kKeyProperty = "outbox-key";
inline constexpr std::string_view kNullProperty = "outbox-null";

/// Why no record can have a header of that name; else nothing.
[[nodiscard]] std::optional<std::string> why_not_header(std::string_view name);

/// The user properties of a record's message, kept from one to the next so that nothing is
/// allocated for most.
class Properties {
  public:
    /// Why no message can carry the record; else nothing, and `list` is its own.
    [[nodiscard]] std::optional<std::string> set(const spi::Record& record);
    /// Views of the record and of this object.
    [[nodiscard]] const std::vector<std::pair<std::string_view, std::string_view>>& list() const {
        return list_;
    }

  private:
    std::optional<std::string> add(std::string_view name, std::string_view value);

    std::vector<std::pair<std::string_view, std::string_view>> list_;
    // Of those that no property holds as they are.
    std::vector<std::unique_ptr<std::pair<std::string, std::string>>> encoded_;
};

}  // namespace outbox::mqtt
