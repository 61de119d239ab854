#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace outbox::test {

// A copy in a buffer of that very size, so that AddressSanitizer sees a read beyond it.
class Exactly {
  public:
    explicit Exactly(std::string_view bytes)
        : bytes_(std::make_unique<char[]>(bytes.size())), size_(bytes.size()) {
        std::copy(bytes.begin(), bytes.end(), bytes_.get());
    }
    operator std::string_view() const { return {bytes_.get(), size_}; }  // NOLINT

  private:
    std::unique_ptr<char[]> bytes_;
    std::size_t size_;
};

// The bytes up to a zero, which is taken as well.
inline std::string_view next_field(std::string_view& rest) {
    const std::size_t end = rest.find('\0');
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    return text;
}

inline void check(bool holds) {
    if (!holds) std::abort();
}

}  // namespace outbox::test
