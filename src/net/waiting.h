#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include <outbox/spi/sink.h>

#include "net/end_search.h"

namespace outbox::net {

/// A record on its way. Its views stay valid until it has an outcome.
struct Item {
    spi::Record record;
    std::size_t bytes = 0;  ///< As they count against limits.
};

/// What a sink has not sent yet, in the order in which a search has it go. Not thread-safe.
class Waiting {
  public:
    using Time = EndSearch::Time;

    /// `search` outlives it.
    explicit Waiting(EndSearch& search) : search_(search) {}

    [[nodiscard]] bool empty() const { return !has_others() && suspects_.empty(); }
    [[nodiscard]] bool has_others() const { return !known_.empty() || !strangers_.empty(); }
    void add(const Item& item);
    /// What was under way when a connection ended; the search knows of the end.
    void add_again(const std::vector<Item>& items);
    /// Who goes next; `suspect` is the one where it is a suspect's turn. `more_others`: others wait
    /// that were taken out.
    [[nodiscard]] EndSearch::Turn turn(EndSearch::Line line, Time now, std::optional<Item>& suspect,
                                       bool more_others = false);
    /// Of the others, the next, taken out; nothing: none may go. A stranger may only where
    /// `may_go` says so, as it has to be sent at once.
    using MayGo = std::function<bool(const Item& item)>;
    [[nodiscard]] std::optional<Item> next(Time now, const MayGo& may_go = {});
    /// All of it, taken out.
    [[nodiscard]] std::vector<Item> take_all();

  private:
    EndSearch& search_;
    std::deque<Item> known_;      // while nothing is looked for: all
    std::deque<Item> strangers_;  // `EndSearch::is_stranger`
    std::deque<Item> suspects_;   // and go alone
};

}  // namespace outbox::net
