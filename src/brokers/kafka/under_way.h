#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "brokers/kafka/topics.h"

namespace outbox::kafka {

inline constexpr std::uint32_t kNoSlot = std::numeric_limits<std::uint32_t>::max();

/// The records that have no outcome yet, in the order in which they were published. A slot's
/// number travels through librdkafka and names the record when it comes back.
class UnderWay {
  public:
    struct Slot {
        std::uint64_t token = 0;
        std::uint64_t sequence = 0;  ///< Never used twice, unlike the slot.
        std::size_t bytes = 0;
        Topic* topic = nullptr;
        std::uint32_t previous = kNoSlot;
        std::uint32_t next = kNoSlot;
        bool produced = false;  ///< librdkafka has it; else it is parked at its topic.
        bool careful = false;   ///< The careful producer has it.
        bool trial = false;     ///< Shows whether what is down is back.
        std::int32_t partition = -1;
    };

    explicit UnderWay(std::size_t max_records) : max_records_(max_records) {}

    [[nodiscard]] bool full() const { return count_ >= max_records_; }
    [[nodiscard]] bool empty() const { return count_ == 0; }
    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] std::uint32_t oldest() const { return head_; }
    [[nodiscard]] Slot& operator[](std::uint32_t id) { return slots_[id]; }

    std::uint32_t add(std::uint64_t token, std::size_t bytes, Topic& topic) {
        std::uint32_t id = 0;
        if (free_.empty()) {
            id = static_cast<std::uint32_t>(slots_.size());
            slots_.emplace_back();
        } else {
            id = free_.back();
            free_.pop_back();
        }
        slots_[id] = {.token = token,
                      .sequence = next_sequence_++,
                      .bytes = bytes,
                      .topic = &topic,
                      .previous = tail_};
        (tail_ == kNoSlot ? head_ : slots_[tail_].next) = id;
        tail_ = id;
        ++count_;
        bytes_ += bytes;
        ++topic.under_way;
        return id;
    }

    void remove(std::uint32_t id) {
        const Slot& slot = slots_[id];
        (slot.previous == kNoSlot ? head_ : slots_[slot.previous].next) = slot.next;
        (slot.next == kNoSlot ? tail_ : slots_[slot.next].previous) = slot.previous;
        --count_;
        bytes_ -= slot.bytes;
        --slot.topic->under_way;
        free_.push_back(id);
    }

  private:
    std::size_t max_records_;
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> free_;
    std::uint32_t head_ = kNoSlot;
    std::uint32_t tail_ = kNoSlot;
    std::uint64_t next_sequence_ = 1;
    std::size_t count_ = 0;
    std::size_t bytes_ = 0;
};

}  // namespace outbox::kafka
