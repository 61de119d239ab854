#pragma once

#include <cstdint>
#include <deque>

#include "net/waiting.h"

namespace outbox::rabbitmq {

/// What waits for a place on a channel: routing keys that are known before those that nobody has
/// seen, each in the order in which they came. Of the latter any number may be refused, one channel
/// for each; the former wait here only until one of theirs has passed again, but may be so many
/// that a turn now and then is the latter's. Not thread-safe.
class Row {
  public:
    [[nodiscard]] bool empty() const { return known_.empty() && strangers_.empty(); }
    void push(const net::Item& item, bool is_known) {
        (is_known ? known_ : strangers_).push_back(item);
    }
    /// The next, taken out; there is one.
    [[nodiscard]] net::Item pop() {
        const bool in_turn = !strangers_.empty() && ++pops_ % kStrangersTurn == 0;
        std::deque<net::Item>& from = in_turn || known_.empty() ? strangers_ : known_;
        net::Item item = from.front();
        from.pop_front();
        return item;
    }

  private:
    static constexpr std::uint32_t kStrangersTurn = 16;  // is one of so many

    std::deque<net::Item> known_;
    std::deque<net::Item> strangers_;
    std::uint32_t pops_ = 0;
};

}  // namespace outbox::rabbitmq
