#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <outbox/spi/event_batch.h>

namespace outbox::relay {

/// The batches of events that a route has in memory, each until the last of its events is done
/// with, and their bytes. Not thread-safe.
class HeldBatches {
  public:
    struct Held {
        spi::EventBatch batch;
        std::uint32_t live = 0;    ///< Events that need its bytes; also what walks it.
        std::size_t bytes = 0;     ///< Of those that are counted in `bytes()`.
        std::uint64_t serial = 0;  ///< Another one each time that the place is used.
    };

    /// An empty batch; `live` is to be set before the first `let_go`.
    std::uint32_t open();
    [[nodiscard]] Held& operator[](std::uint32_t id) { return *batches_[id]; }
    [[nodiscard]] const Held& operator[](std::uint32_t id) const { return *batches_[id]; }

    /// The batch was filled, or has grown: its bytes count from now on.
    void count(Held& held);
    /// As many of its events need the batch no longer; with the last one it is emptied.
    void let_go(std::uint32_t id, std::uint32_t events);

    /// A dead letter of so many bytes is on its way to the database; those are recorded in turn.
    void keep_letter(std::size_t bytes);
    void letter_recorded();

    /// Of all that is held.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    /// Of those read last.
    [[nodiscard]] std::size_t bytes_per_event() const { return bytes_per_event_; }
    void note_size(const spi::EventBatch& batch);

  private:
    std::vector<std::unique_ptr<Held>> batches_;
    std::vector<std::uint32_t> free_;
    std::uint64_t next_serial_ = 1;
    std::size_t bytes_ = 0;
    std::deque<std::size_t> letters_;
    std::size_t bytes_per_event_ = 1'024;
};

}  // namespace outbox::relay
