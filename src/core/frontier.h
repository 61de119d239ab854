#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace outbox::core {

/// How far a table that several write, and that is read by its positions, has been seen for good: a
/// writer takes a position before others see its row, so that a lower one may come to be seen after
/// a higher one. For writers whose transactions have a number before they take a position. Pure.
class Frontier {
  public:
    /// What one look knew of transactions, by their numbers. Both 0 where one writes at a time.
    struct Writers {
        /// Those from here on got their number behind the look, and take higher positions.
        std::uint64_t begun = 0;
        /// Those before had ended as it looked, or did not write the table.
        std::uint64_t ended = 0;
    };

    /// A look that began at `settled()`, or below, saw all rows that there were up to `position`;
    /// `whole`: and behind.
    void reach(std::int64_t position, bool whole, Writers writers) {
        // Numbers only rise: it is another server, which knows nothing of that one's.
        if (waiting_ && writers.begun < waiting_->begun) waiting_.reset();
        if (whole) position = std::max(position, reached_);
        settle(position, writers);
        reached_ = std::max(reached_, position);
        if (!waiting_) waiting_ = Waiting{writers.begun, position};
        settle(position, writers);
    }
    /// What is above has to be seen again.
    void go_back_to(std::int64_t position) {
        reached_ = std::min(reached_, position);
        settled_ = std::min(settled_, position);
        if (waiting_) waiting_->position = std::min(waiting_->position, position);
    }
    /// Nothing that is yet to be seen stands here or below.
    [[nodiscard]] std::int64_t settled() const { return settled_; }

  private:
    struct Waiting {
        std::uint64_t begun = 0;
        std::int64_t position = 0;
    };

    // Whoever could have written up to there had ended before this look, which saw up to `seen`.
    void settle(std::int64_t seen, Writers writers) {
        if (!waiting_ || writers.ended < waiting_->begun) return;
        settled_ = std::max(settled_, std::min(seen, waiting_->position));
        if (seen >= waiting_->position) waiting_.reset();
    }

    std::optional<Waiting> waiting_;
    std::int64_t reached_ = 0;
    std::int64_t settled_ = 0;
};

}  // namespace outbox::core
