#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "brokers/rabbitmq/client.h"
#include "brokers/rabbitmq/line.h"
#include "brokers/rabbitmq/row.h"
#include "brokers/rabbitmq/suspicion.h"

namespace outbox::rabbitmq {

/// What is under way on each channel, and what waits for room there. A kind of messages with a
/// channel to itself goes whatever the others do. Kinds that share one, as the user may have few,
/// take turns and are never under way beside each other: a refusal closes the channel under all
/// that are, and must cost those nothing that are well. Pure; not thread-safe.
class Ways {
  public:
    using Kind = Suspicion::Kind;
    static constexpr std::size_t kMost = Client::kMostChannels;  ///< One for each kind.
    /// Messages with routing keys that have to prove themselves, under way at once: were one
    /// refused, as many may go again.
    static constexpr std::size_t kMostUnproven = 100;
    /// Messages of one turn on a shared channel, while others wait for theirs.
    static constexpr std::array<std::size_t, kMost> kTurns = {128, 16, 1};

    struct Channel {
        bool is_open = false;
        Line line = {};
        Kind turn = Kind::kRefused;  // whose it is; what is proven comes behind it
        std::size_t left = 0;        // messages of it
    };

    /// Of a connection that is new: nothing is under way on it. What waits is left as it is.
    void begin(std::size_t channels);
    /// More or fewer than before, on the same connection.
    void set_count(std::size_t channels) { count_ = std::clamp<std::size_t>(channels, 1, kMost); }
    [[nodiscard]] std::size_t count() const { return count_; }

    /// By number, which begins with 1.
    [[nodiscard]] Channel& channel(std::uint16_t number) { return channels_[number - 1U]; }
    [[nodiscard]] std::uint16_t number_of(Kind kind) const {
        return static_cast<std::uint16_t>(std::min(place(kind), count_ - 1) + 1);
    }
    [[nodiscard]] std::array<Channel, kMost>& channels() { return channels_; }

    /// Whether one of this kind may be sent now.
    [[nodiscard]] bool has_room(Kind kind) const;
    void push(const Item& item, Kind kind, Line::Time now, std::uint64_t serial);
    /// Another one of this kind may be under way, as the broker has judged one of them.
    void judged(Kind kind);
    /// The broker closed the channel for a message of this kind.
    void closed(Channel& channel, Kind guilty);
    /// What was sent on channels where a refusal may come, before `time`: `Line::judge_before`.
    template <typename Judged>
    void judge_before(Line::Time time, Judged judged) {
        for (std::size_t i = count_ == 1 ? 0 : 1; i < kMost; ++i) {
            channels_[i].line.judge_before(time, judged);
        }
    }

    /// For room: `known`, before those that nobody has seen.
    void wait(const Item& item, Kind kind, bool known) { rows_[place(kind)].push(item, known); }
    [[nodiscard]] bool waits(Kind kind) const { return !rows_[place(kind)].empty(); }
    [[nodiscard]] Item pop(Kind kind) { return rows_[place(kind)].pop(); }
    [[nodiscard]] bool any_waits() const {
        return std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return !row.empty(); });
    }
    /// Some of them may be sent now.
    [[nodiscard]] bool any_may_go() const;

    [[nodiscard]] std::size_t open() const;    ///< Messages without an outcome.
    [[nodiscard]] std::size_t opened() const;  ///< Channels.
    [[nodiscard]] bool all_confirmed() const;

    static constexpr std::array<Kind, kMost> kKinds = {Kind::kProven, Kind::kUnproven,
                                                       Kind::kRefused};

  private:
    [[nodiscard]] static std::size_t place(Kind kind) { return static_cast<std::size_t>(kind); }
    [[nodiscard]] const Channel& channel_of(Kind kind) const {
        return channels_[number_of(kind) - 1U];
    }
    [[nodiscard]] bool share(Kind a, Kind b) const { return number_of(a) == number_of(b); }
    [[nodiscard]] std::optional<Kind> next_in_turn(Kind asking) const;

    std::size_t count_ = 1;
    std::array<Channel, kMost> channels_;
    std::array<Row, kMost> rows_;  // by kind
    std::array<std::size_t, kMost> windows_ = {SIZE_MAX, 1,
                                               1};  // likewise: messages not yet judged
};

}  // namespace outbox::rabbitmq
