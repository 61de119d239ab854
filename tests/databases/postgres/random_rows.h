#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace outbox::test {

// Random values of PostgreSQL types, as text that the type takes, from a seed.
class RandomValues {
  public:
    explicit RandomValues(std::uint64_t seed) : random_(seed) {}

    int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }
    bool one_in(int chances) { return below(chances) == 0; }
    template <typename T>
    const T& pick(const std::vector<T>& from) {
        return from[static_cast<std::size_t>(below(static_cast<int>(from.size())))];
    }

    // `type` is one of those named in the body, or has its values given in `choices`.
    std::string value(const std::string& type);

    std::string words(int max_characters);
    std::string json(int depth);
    std::string number(int max_digits, int max_scale);
    std::string uuid();
    std::string time(bool with_time, bool with_zone);

  private:
    std::string digits(int count);
    std::mt19937_64 random_;
};

}  // namespace outbox::test
