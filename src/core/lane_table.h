#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace outbox::core {

using LaneId = std::uint32_t;
inline constexpr LaneId kNoLane = std::numeric_limits<LaneId>::max();

/// Hash table from key hash to lane: open addressing with linear probing and backward-shift
/// deletion (Knuth, TAOCP 3, 6.4, algorithm R), so that an event costs no allocation. Keys are
/// hashes already and are not hashed again. Pure; not thread-safe.
class LaneTable {
  public:
    LaneTable() : entries_(kInitialSize) {}

    [[nodiscard]] LaneId find(std::uint64_t key) const {
        for (std::size_t i = home(key);; i = next(i)) {
            if (entries_[i].lane == kNoLane) return kNoLane;
            if (entries_[i].key == key) return entries_[i].lane;
        }
    }

    /// Precondition: `key` is not in the table.
    void insert(std::uint64_t key, LaneId lane) {
        if (++size_ * 2 > entries_.size()) grow();
        place({key, lane});
    }

    /// Precondition: `key` is in the table.
    void erase(std::uint64_t key) {
        std::size_t hole = home(key);
        while (entries_[hole].key != key || entries_[hole].lane == kNoLane) hole = next(hole);
        for (std::size_t i = next(hole); entries_[i].lane != kNoLane; i = next(i)) {
            const std::size_t wanted = home(entries_[i].key);
            // Move the entry back unless its home lies cyclically in (hole, i].
            const bool stays =
                hole <= i ? (wanted > hole && wanted <= i) : (wanted > hole || wanted <= i);
            if (stays) continue;
            entries_[hole] = entries_[i];
            hole = i;
        }
        entries_[hole].lane = kNoLane;
        --size_;
    }

    [[nodiscard]] std::size_t size() const { return size_; }

  private:
    static constexpr std::size_t kInitialSize = 4096;
    struct Entry {
        std::uint64_t key = 0;
        LaneId lane = kNoLane;
    };

    [[nodiscard]] std::size_t home(std::uint64_t key) const { return key & (entries_.size() - 1); }
    [[nodiscard]] std::size_t next(std::size_t i) const { return (i + 1) & (entries_.size() - 1); }
    void place(Entry entry) {
        std::size_t i = home(entry.key);
        while (entries_[i].lane != kNoLane) i = next(i);
        entries_[i] = entry;
    }
    void grow() {
        std::vector<Entry> old(entries_.size() * 2);
        old.swap(entries_);
        for (const Entry& entry : old) {
            if (entry.lane != kNoLane) place(entry);
        }
    }

    std::vector<Entry> entries_;
    std::size_t size_ = 0;
};

}  // namespace outbox::core
