#include "core/json_string.h"

#include <charconv>
#include <cstddef>
#include <cstdint>

#include "core/utf8.h"

namespace outbox {
namespace {

constexpr std::size_t kHexDigits = 4;
constexpr std::uint32_t kHigh = 0xD800;  // halves of surrogate pairs begin
constexpr std::uint32_t kLow = 0xDC00;
constexpr std::uint32_t kEnd = 0xE000;
constexpr std::uint32_t kBeyond = 0x10000;

// Of "uXXXX", which the scan has seen.
std::uint32_t unit(std::string_view escape) {
    std::uint32_t code = 0;
    std::from_chars(escape.data() + 1, escape.data() + 1 + kHexDigits, code, 16);
    return code;
}

// Appends what the escape behind a backslash stands for; how long it is, 0: half a surrogate pair.
std::size_t append_escape(std::string_view at, std::string& out) {
    constexpr std::string_view kNames = "bfnrt";
    constexpr std::string_view kValues = "\b\f\n\r\t";
    if (at.front() != 'u') {
        const std::size_t named = kNames.find(at.front());
        out += named == std::string_view::npos ? at.front() : kValues[named];
        return 1;
    }
    constexpr std::size_t kLength = 1 + kHexDigits;
    const std::uint32_t code = unit(at);
    if (code < kHigh || code >= kEnd) {
        append_utf8(code, out);
        return kLength;
    }
    const std::string_view behind = at.substr(kLength);
    const std::uint32_t low = behind.starts_with("\\u") ? unit(behind.substr(1)) : 0;
    if (code >= kLow || low < kLow || low >= kEnd) return 0;
    append_utf8(kBeyond + ((code - kHigh) << 10U) + (low - kLow), out);
    return 2 * kLength + 1;
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
