#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace outbox::net {

/// Of which keys a record has passed lately: of some thousand, the later ones. Not thread-safe.
class PassedKeys {
  public:
    void add(std::string_view key);
    void remove(std::string_view key);
    [[nodiscard]] bool has(std::string_view key) const;

  private:
    // Each key has one place, and what comes later there displaces it. 0: nobody.
    std::array<std::uint32_t, 4'096> tags_{};
};

}  // namespace outbox::net
