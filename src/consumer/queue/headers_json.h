#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/json_text.h"
#include "core/utf8.h"

namespace outbox::consumer {

/// Headers as `Arrival::headers` has them: whatever bytes they are, they become text.
class HeadersJson {
  public:
    void add(std::string_view name, std::string_view value) {
        json_ += json_.empty() ? '{' : ',';
        append_json_string(to_utf8(name), json_);
        json_ += ':';
        append_json_string(to_utf8(value), json_);
    }
    [[nodiscard]] std::string text() && { return json_.empty() ? "{}" : std::move(json_) + '}'; }

  private:
    std::string json_;
};

}  // namespace outbox::consumer
