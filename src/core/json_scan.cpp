#include "core/json_scan.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/ascii.h"
#include "core/utf8.h"

namespace outbox {
namespace {

// Which containers are open: true for an object. The first 64 need no memory.
class Open {
  public:
    void push(bool object) {
        if (depth_ >= kBits) {
            more_.push_back(object);
        } else if (object) {
            bits_ |= std::uint64_t{1} << depth_;
        } else {
            bits_ &= ~(std::uint64_t{1} << depth_);
        }
        ++depth_;
    }
    void pop() {
        --depth_;
        if (depth_ >= kBits) more_.pop_back();
    }
    [[nodiscard]] bool empty() const { return depth_ == 0; }
    [[nodiscard]] bool in_object() const {
        return depth_ > kBits ? more_.back() : (bits_ >> (depth_ - 1) & 1U) != 0;
    }

  private:
    static constexpr std::size_t kBits = 64;
    std::uint64_t bits_ = 0;
    std::vector<bool> more_;
    std::size_t depth_ = 0;
};

// Goes over JSON text. After a false its place means nothing.
class Scanner {
  public:
    explicit Scanner(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

    void skip_space() {
        while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
    }
    [[nodiscard]] bool at_end() const { return at_ == end_; }
    [[nodiscard]] const char* place() const { return at_; }

    bool take(char c) {
        if (at_ == end_ || *at_ != c) return false;
        ++at_;
        return true;
    }

    bool value() {
        Open open;
        while (true) {
            skip_space();
            bool opened = false;
            if (!begin_value(open, opened)) return false;
            if (opened) continue;
            while (true) {
                if (open.empty()) return true;
                skip_space();
                if (take(',')) {
                    if (open.in_object() && !name()) return false;
                    break;
                }
                if (!take(open.in_object() ? '}' : ']')) return false;
                open.pop();
            }
        }
    }

    // A member's name with the colon behind it.
    bool name() {
        skip_space();
        if (!string()) return false;
        skip_space();
        return take(':');
    }

    bool string() {
        if (!take('"')) return false;
        skip_plain();
        while (at_ != end_) {
            const auto byte = static_cast<unsigned char>(*at_);
            if (byte < 0x20) return false;
            ++at_;
            if (byte == '"') return true;
            if (byte == '\\' && !escape()) return false;
            skip_plain();
        }
        return false;
    }

  private:
    // Goes on while eight bytes at a time neither end a string nor are special in it.
    void skip_plain() {
        constexpr std::uint64_t kOnes = 0x0101010101010101U;
        // A high bit for each byte that is zero; those above the lowest may be wrong.
        const auto zeros = [](std::uint64_t word) { return (word - kOnes) & ~word; };
        while (end_ - at_ >= static_cast<std::ptrdiff_t>(sizeof(std::uint64_t))) {
            std::uint64_t word = 0;
            std::memcpy(&word, at_, sizeof word);
            const std::uint64_t special = zeros(word ^ (kOnes * '"')) |
                                          zeros(word ^ (kOnes * '\\')) |
                                          ((word - kOnes * 0x20) & ~word);
            if ((special & (kOnes << 7U)) != 0) return;
            at_ += sizeof word;
        }
    }

    // A whole scalar or empty container; or what is before the first value of one (`opened`).
    bool begin_value(Open& open, bool& opened) {
        if (at_ == end_) return false;
        const char first = *at_;
        if (first == '"') return string();
        if (first != '{' && first != '[')
            return first == '-' || is_digit(first) ? number() : word();
        const bool object = first == '{';
        ++at_;
        skip_space();
        if (take(object ? '}' : ']')) return true;
        open.push(object);
        opened = true;
        return !object || name();
    }

    bool escape() {
        if (at_ == end_) return false;
        const char c = *at_++;
        if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
        for (int i = 0; i < 4; ++i) {
            if (at_ == end_ || !is_hex_digit(*at_)) return false;
            ++at_;
        }
        return true;
    }

    bool digits() {
        if (at_ == end_ || !is_digit(*at_)) return false;
        while (at_ != end_ && is_digit(*at_)) ++at_;
        return true;
    }

    bool number() {
        take('-');
        if (!take('0') && !digits()) return false;
        if (take('.') && !digits()) return false;
        if (take('e') || take('E')) {
            if (!take('+')) take('-');
            return digits();
        }
        return true;
    }

    bool word() {
        for (const std::string_view known : {"true", "false", "null"}) {
            const auto left = static_cast<std::size_t>(end_ - at_);
            if (left < known.size() || std::memcmp(at_, known.data(), known.size()) != 0) continue;
            at_ += known.size();
            return true;
        }
        return false;
    }

    const char* at_;
    const char* end_;
};

std::string_view between(const char* first, const char* last) {
    return {first, static_cast<std::size_t>(last - first)};
}

}  // namespace

bool is_json(std::string_view text) {
    Scanner scanner(text);
    if (!scanner.value()) return false;
    scanner.skip_space();
    return scanner.at_end() && is_utf8(text);
}

bool for_each_json_member(
    std::string_view text,
    const std::function<void(std::string_view name, std::string_view value)>& take) {
    Scanner scanner(text);
    scanner.skip_space();
    if (!is_utf8(text) || !scanner.take('{')) return false;
    scanner.skip_space();
    bool more = !scanner.take('}');
    while (more) {
        scanner.skip_space();
        const char* const begin = scanner.place();
        if (!scanner.string()) return false;
        const std::string_view name = between(begin, scanner.place());
        scanner.skip_space();
        if (!scanner.take(':')) return false;
        scanner.skip_space();
        const char* const value = scanner.place();
        if (!scanner.value()) return false;
        take(name, between(value, scanner.place()));
        scanner.skip_space();
        more = scanner.take(',');
        if (!more && !scanner.take('}')) return false;
    }
    scanner.skip_space();
    return scanner.at_end();
}

}  // namespace outbox
