#pragma once

#include <cstdlib>
#include <initializer_list>
#include <vector>

namespace outbox::test {

/// Whether this is a run of `script/test --full`, which sets FULL_TEST_RUN (`outbox` warns of an
/// OUTBOX_ that it does not know): what repeats a test on another database or in another mode of
/// the relay, for the time it takes, is run only then.
inline bool full_run() {
    return std::getenv("FULL_TEST_RUN") != nullptr;
}

/// `short_run`, and in a full run also `others`.
template <typename T>
std::vector<T> and_in_full(std::initializer_list<T> short_run, std::initializer_list<T> others) {
    std::vector<T> all(short_run);
    if (full_run()) all.insert(all.end(), others.begin(), others.end());
    return all;
}

}  // namespace outbox::test
