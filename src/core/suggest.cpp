#include "core/suggest.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace outbox {
namespace {

// Levenshtein distance with one row of memory.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

}  // namespace

std::string_view closest(std::string_view word, const std::vector<std::string_view>& candidates) {
    constexpr std::size_t kMaxWord = 64;
    if (word.empty() || word.size() > kMaxWord) return {};
    std::string_view best;
    std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
    for (const std::string_view candidate : candidates) {
        const std::size_t found = distance(word, candidate);
        if (found < best_distance && found < candidate.size()) {
            best = candidate;
            best_distance = found;
        }
    }
    return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates) {
    const std::string_view best = closest(word, candidates);
    return best.empty() ? std::string() : "; did you mean '" + std::string(best) + "'?";
}

}  // namespace outbox
