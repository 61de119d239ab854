#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/lanes.h"
#include "core/retry_policy.h"

namespace outbox::core {

/// Parts of a destination that are down while others answer (a topic, a partition), and the keys
/// that wait for them. Each part is a destination of its own: one key at a time is let go, as a
/// probe, and all of them once a probe has passed. A key that waits for a part beyond `kMaxParts`
/// is a probe of its own. However many parts and keys there are, probes take a bounded share of
/// what the destination does. Pure; not thread-safe; times are `Clock::boot_us`.
class DownParts {
  public:
    /// More parts than this are not told apart.
    static constexpr std::size_t kMaxParts = 1'000;
    /// Probes a second, and as many at once; each that passes earns `kEarned` more, so that a
    /// destination that is back is back soon.
    static constexpr std::int64_t kProbesPerSecond = 50;
    static constexpr std::int64_t kEarned = 2;
    static constexpr std::int64_t kMostEarned = 1'000;
    /// Probes without an outcome: so many, or a part of what is under way if that is more.
    static constexpr std::size_t kMostProbing = 16;
    static constexpr std::size_t kShareOfUnderWay = 4;
    /// A key beyond `kMaxParts` is tried this often at least, as far as all of that allows.
    static constexpr std::int64_t kLoneMaxMs = 300'000;
    /// A part that was forgotten and is down again within this time is not told anew.
    static constexpr std::int64_t kToldForUs = 600'000'000;

    explicit DownParts(RetryPolicy backoff);
    DownParts(const DownParts&) = delete;
    DownParts& operator=(const DownParts&) = delete;

    [[nodiscard]] bool empty() const { return parts_.empty() && lone_.empty() && probing_.empty(); }
    [[nodiscard]] std::size_t count() const { return parts_.size(); }
    [[nodiscard]] bool contains(std::string_view name) const { return parts_.contains(name); }

    enum class News : std::uint8_t {
        kNone,
        kPart,    ///< The part is down.
        kTooMany  ///< Parts beyond `kMaxParts` are; told once until fewer are.
    };
    /// The part `name` failed on an event of `key`. `waits`: the key waits from now on, until it is
    /// handed out by `take_due` or `passed`; false: it waits already.
    News failed(std::string_view name, LaneKey key, bool waits, std::int64_t now_us,
                std::uint64_t random);

    /// Appends the keys whose turn it is to be tried while `under_way` events are. A probe of which
    /// nothing is heard gives way to the next; a part for which no key waits any more is forgotten.
    void take_due(std::int64_t now_us, std::size_t under_way, std::vector<LaneKey>& out);

    /// What was heard of an event of `key` says nothing of the part of which it was the probe: its
    /// next one may go now.
    void heard(LaneKey key, std::int64_t now_us);

    /// An event of `key` was published. Appends the keys that waited for the part of which it was
    /// the probe, and says which that is.
    std::optional<std::string> passed(LaneKey key, std::int64_t now_us, std::vector<LaneKey>& out);

    /// When `take_due` has something to do while `under_way` events are; INT64_MAX: not before
    /// something is heard.
    [[nodiscard]] std::int64_t next_due_us(std::size_t under_way) const;

  private:
    struct Part {
        std::uint32_t failures = 0;
        std::int64_t due_us = 0;
        std::deque<LaneKey> keys;  // in the order in which they failed
        std::optional<LaneKey> probe;
    };
    using Parts = std::map<std::string, Part, std::less<>>;
    struct Lone {
        std::int64_t due_us;
        LaneKey key;
        std::uint32_t failures;
        bool operator>(const Lone& other) const { return due_us > other.due_us; }
    };
    struct Probing {
        Parts::iterator part;        // end: a lone key
        std::uint32_t failures = 0;  // of a lone key
        std::int64_t until_us = 0;   // then nobody waits for its outcome
    };

    [[nodiscard]] std::optional<Probing> no_longer_probing(LaneKey key, std::int64_t now_us);
    void set_due(Parts::iterator part, std::int64_t due_us);
    void forget(Parts::iterator part, std::int64_t now_us);
    void give_up_probes(std::int64_t now_us);
    void begin_probe(LaneKey key, const Probing& probing, std::vector<LaneKey>& out);
    bool try_part(std::int64_t now_us, std::vector<LaneKey>& out);
    bool try_lone(std::int64_t now_us, std::vector<LaneKey>& out);
    void earn(std::int64_t now_us);
    [[nodiscard]] static std::size_t most_probing(std::size_t under_way);

    RetryPolicy backoff_;
    RetryPolicy lone_backoff_;
    Parts parts_;
    std::set<std::pair<std::int64_t, std::string_view>> due_;  // of `parts_`
    std::priority_queue<Lone, std::vector<Lone>, std::greater<>> lone_;
    std::unordered_map<LaneKey, Probing> probing_;
    std::set<std::pair<std::int64_t, LaneKey>> given_up_;         // of `probing_`: `until_us`
    std::map<std::string, std::int64_t, std::less<>> forgotten_;  // and told: until when that holds
    std::int64_t credit_us_ = 0;                                  // of probes that may go
    std::int64_t credited_us_ = 0;                                // until then
    bool lone_turn_ = false;
    bool told_too_many_ = false;
};

}  // namespace outbox::core
