#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include <outbox/spi/position_set.h>

namespace outbox::spi {

namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

constexpr PositionSet::Bits make_all() {
    PositionSet::Bits bits{};
    bits.fill(0xFF);
    return bits;
}

std::size_t index_of(Position position) {
    return static_cast<std::size_t>(position % PositionSet::kSegmentSize);
}

std::uint8_t mask_of(std::size_t index) {
    return static_cast<std::uint8_t>(0x80U >> (index % 8));
}

bool has(const PositionSet::Bits& bits, std::size_t index) {
    return (bits[index / 8] & mask_of(index)) != 0;
}

std::uint64_t word_at(const PositionSet::Bits& bits, std::size_t byte) {
    std::uint64_t word = 0;
    std::memcpy(&word, bits.data() + byte, kWordBytes);
    return word;
}

std::size_t count_of(const PositionSet::Bits& bits) {
    std::size_t count = 0;
    for (std::size_t byte = 0; byte < bits.size(); byte += kWordBytes) {
        count += static_cast<std::size_t>(std::popcount(word_at(bits, byte)));
    }
    return count;
}

// The first index from `from` on whose bit is `wanted`, or the segment's size.
std::size_t find_bit(const PositionSet::Bits& bits, std::size_t from, bool wanted) {
    const std::uint64_t none = wanted ? 0 : ~std::uint64_t{0};
    std::size_t index = from;
    while (index < PositionSet::kSegmentSize) {
        const std::size_t byte = index / 8;
        if (index % 64 == 0 && word_at(bits, byte) == none) {
            index += 64;
        } else if (has(bits, index) == wanted) {
            return index;
        } else {
            ++index;
        }
    }
    return PositionSet::kSegmentSize;
}

}  // namespace

constinit const PositionSet::Bits PositionSet::kAll = make_all();

PositionSet& PositionSet::operator=(const PositionSet& other) {
    if (this == &other) return *this;
    segments_.clear();
    last_ = nullptr;
    for (const auto& [number, segment] : other.segments_) {
        segments_[number] = {segment.count,
                             segment.bits ? std::make_unique<Bits>(*segment.bits) : nullptr};
    }
    size_ = other.size_;
    return *this;
}

PositionSet& PositionSet::operator=(PositionSet&& other) noexcept {
    segments_ = std::move(other.segments_);
    size_ = std::exchange(other.size_, 0);
    last_ = nullptr;
    other.segments_.clear();
    other.last_ = nullptr;
    return *this;
}

PositionSet::Segment& PositionSet::segment_at(std::int64_t number) {
    if (last_ != nullptr && last_number_ == number) return *last_;
    const auto [it, is_new] = segments_.try_emplace(number);
    if (is_new) it->second.bits = std::make_unique<Bits>(Bits{});
    last_number_ = number;
    last_ = &it->second;
    return *last_;
}

// A segment that became empty goes, one that became full needs no bits.
void PositionSet::settle(Segments::iterator segment) {
    if (segment->second.count == 0) {
        if (last_ == &segment->second) last_ = nullptr;
        segments_.erase(segment);
    } else if (segment->second.count == static_cast<std::size_t>(kSegmentSize)) {
        segment->second.bits.reset();
    }
}

bool PositionSet::add(Position position) {
    Segment& segment = segment_at(segment_of(position));
    const std::size_t index = index_of(position);
    if (!segment.bits || has(*segment.bits, index)) return false;
    (*segment.bits)[index / 8] |= mask_of(index);
    ++size_;
    if (++segment.count == static_cast<std::size_t>(kSegmentSize)) segment.bits.reset();
    return true;
}

void PositionSet::add(std::span<const Position> positions) {
    for (const Position position : positions) add(position);
}

void PositionSet::add(PositionRange range) {
    for (Position position = range.first; position <= range.last;) {
        const std::int64_t number = segment_of(position);
        const Position last = std::min(range.last, (number + 1) * kSegmentSize - 1);
        if (position % kSegmentSize == 0 && last - position + 1 == kSegmentSize) {
            Segment& segment = segment_at(number);
            size_ += static_cast<std::size_t>(kSegmentSize) - segment.count;
            segment.count = static_cast<std::size_t>(kSegmentSize);
            segment.bits.reset();
        } else {
            for (Position one = position; one <= last; ++one) add(one);
        }
        position = last + 1;
    }
}

void PositionSet::add_segment(std::int64_t number,
                              std::span<const std::uint8_t, kSegmentBytes> bits) {
    Segment& segment = segment_at(number);
    if (!segment.bits) return;
    for (std::size_t byte = 0; byte < bits.size(); ++byte) (*segment.bits)[byte] |= bits[byte];
    const std::size_t count = count_of(*segment.bits);
    size_ += count - segment.count;
    segment.count = count;
    settle(segments_.find(number));
}

bool PositionSet::remove(Position position) {
    const std::int64_t number = segment_of(position);
    if (last_ == nullptr || last_number_ != number) {
        const auto found = segments_.find(number);
        if (found == segments_.end()) return false;
        last_number_ = number;
        last_ = &found->second;
    }
    Segment& segment = *last_;
    const std::size_t index = index_of(position);
    if (!segment.bits) segment.bits = std::make_unique<Bits>(kAll);
    if (!has(*segment.bits, index)) return false;
    (*segment.bits)[index / 8] &= static_cast<std::uint8_t>(~mask_of(index));
    --size_;
    if (--segment.count == 0) settle(segments_.find(number));
    return true;
}

void PositionSet::remove(std::span<const Position> positions) {
    for (const Position position : positions) remove(position);
}

void PositionSet::remove_segments_below(Position position) {
    last_ = nullptr;
    while (!segments_.empty() && segments_.begin()->first < segment_of(position)) {
        size_ -= segments_.begin()->second.count;
        segments_.erase(segments_.begin());
    }
}

void PositionSet::take_lowest(std::size_t most, std::vector<Position>& out) {
    const std::size_t end = out.size() + std::min(most, size_);
    out.reserve(end);
    while (out.size() < end) {
        const std::size_t before = out.size();
        const auto& [number, segment] = *segments_.begin();
        const Bits& bits = segment.bits ? *segment.bits : kAll;
        for (std::size_t index = find_bit(bits, 0, true); index < kSegmentSize && out.size() < end;
             index = find_bit(bits, index + 1, true)) {
            out.push_back(number * kSegmentSize + static_cast<Position>(index));
        }
        remove(std::span(out).subspan(before));
    }
}

void PositionSet::keep_common(const PositionSet& other) {
    last_ = nullptr;
    for (auto it = segments_.begin(); it != segments_.end();) {
        Segment& segment = it->second;
        const auto found = other.segments_.find(it->first);
        const auto next = std::next(it);
        if (found == other.segments_.end()) {
            size_ -= segment.count;
            segments_.erase(it);
        } else if (found->second.bits) {
            if (!segment.bits) segment.bits = std::make_unique<Bits>(kAll);
            for (std::size_t byte = 0; byte < kSegmentBytes; ++byte) {
                (*segment.bits)[byte] &= (*found->second.bits)[byte];
            }
            const std::size_t count = count_of(*segment.bits);
            size_ -= segment.count - count;
            segment.count = count;
            settle(it);
        }
        it = next;
    }
}

bool PositionSet::contains(Position position) const {
    if (position < 0) return false;
    const auto found = segments_.find(segment_of(position));
    if (found == segments_.end()) return false;
    return !found->second.bits || has(*found->second.bits, index_of(position));
}

Position PositionSet::highest() const {
    if (segments_.empty()) return 0;
    const auto& [number, segment] = *segments_.rbegin();
    Position position = (number + 1) * kSegmentSize - 1;
    while (segment.bits && !has(*segment.bits, index_of(position))) --position;
    return position;
}

std::vector<Position> PositionSet::positions() const {
    std::vector<Position> out;
    out.reserve(size_);
    for_each_segment([&](std::int64_t number, const Bits& bits) {
        for (std::size_t index = find_bit(bits, 0, true); index < kSegmentSize;
             index = find_bit(bits, index + 1, true)) {
            out.push_back(number * kSegmentSize + static_cast<Position>(index));
        }
    });
    return out;
}

void PositionSet::append_ranges(PositionRange within, std::size_t most,
                                std::vector<PositionRange>& out) const {
    const std::size_t end = out.size() + most;
    for (auto it = segments_.lower_bound(segment_of(within.first)); it != segments_.end(); ++it) {
        const Position base = it->first * kSegmentSize;
        const Bits& bits = it->second.bits ? *it->second.bits : kAll;
        std::size_t index = within.first > base ? static_cast<std::size_t>(within.first - base) : 0;
        while ((index = find_bit(bits, index, true)) < kSegmentSize) {
            const Position first = base + static_cast<Position>(index);
            if (first > within.last || out.size() == end) return;
            index = find_bit(bits, index, false);
            out.push_back({first, std::min(base + static_cast<Position>(index) - 1, within.last)});
        }
    }
}

void PositionSet::append_missing(PositionRange within, std::size_t most,
                                 std::vector<PositionRange>& out) const {
    const std::size_t end = out.size() + most;
    Position first = within.first;  // of what is missing and not appended yet
    const auto close = [&](Position last) {
        if (last >= first && out.size() < end) out.push_back({first, last});
    };
    for (auto it = segments_.lower_bound(segment_of(within.first));
         it != segments_.end() && out.size() < end; ++it) {
        const Position base = it->first * kSegmentSize;
        if (base > within.last) break;
        if (!it->second.bits) {
            close(base - 1);
            first = std::max(first, base + kSegmentSize);
            continue;
        }
        const Bits& bits = *it->second.bits;
        std::size_t index = first > base ? static_cast<std::size_t>(first - base) : 0;
        while (index < kSegmentSize && out.size() < end) {
            const std::size_t there = find_bit(bits, index, true);
            if (there == kSegmentSize || base + static_cast<Position>(there) > within.last) break;
            close(base + static_cast<Position>(there) - 1);
            index = find_bit(bits, there, false);
            first = base + static_cast<Position>(index);
        }
    }
    if (first <= within.last) close(within.last);
}

}  // namespace outbox::spi
