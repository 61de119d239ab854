#include "core/json_string.h"

#include <cstddef>

#include "core/utf16_escape.h"
#include "core/utf8.h"

namespace outbox {
namespace {

// Appends what the escape behind a backslash stands for; how long it is, 0: half a surrogate pair.
std::size_t append_escape(std::string_view at, std::string& out) {
    constexpr std::string_view kNames = "bfnrt";
    constexpr std::string_view kValues = "\b\f\n\r\t";
    if (at.front() != 'u') {
        const std::size_t named = kNames.find(at.front());
        out += named == std::string_view::npos ? at.front() : kValues[named];
        return 1;
    }
    std::string_view rest = at.substr(1);
    const auto code = take_utf16_escape(rest);
    if (!code || is_surrogate(*code)) return 0;
    append_utf8(*code, out);
    return at.size() - rest.size();
}

}  // namespace

std::optional<std::string_view> json_string(std::string_view json, std::string& storage) {
    if (json.size() < 2 || json.front() != '"') return std::nullopt;
    const std::string_view inner = json.substr(1, json.size() - 2);
    std::size_t at = inner.find('\\');
    if (at == std::string_view::npos) return inner;
    storage.clear();
    std::size_t from = 0;
    while (at != std::string_view::npos) {
        storage.append(inner, from, at - from);
        const std::size_t length = append_escape(inner.substr(at + 1), storage);
        if (length == 0) return std::nullopt;
        from = at + 1 + length;
        at = inner.find('\\', from);
    }
    storage.append(inner, from);
    return storage;
}

}  // namespace outbox
