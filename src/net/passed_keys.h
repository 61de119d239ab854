#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace outbox::net {

/// Of which keys a record has passed lately: of so many as there are places, the later ones. Not
/// thread-safe.
class PassedKeys {
  public:
    explicit PassedKeys(std::size_t places = 4'096) : tags_(places) {}  ///< Of four bytes.

    void add(std::string_view key);
    void remove(std::string_view key);
    void clear() { tags_.assign(tags_.size(), 0); }
    [[nodiscard]] bool has(std::string_view key) const;

  private:
    // Each key has one place, and what comes later there displaces it. 0: nobody.
    std::vector<std::uint32_t> tags_;
};

}  // namespace outbox::net
