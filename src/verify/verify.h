#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <outbox/result.h>

namespace outbox::core {

/// What a journal line says about its event.
enum class JournalState : std::uint8_t {
    kIntent,      ///< About to commit; whether it did is not known from this line.
    kCommitted,   ///< The transaction is durable. What a line without `state` means.
    kRolledBack,  ///< The transaction left nothing.
};

/// One line of a journal, produced or received.
struct JournalLine {
    std::string id;
    std::string key;                ///< Empty: no order is promised.
    std::optional<std::int64_t> n;  ///< Rises by transaction within a key.
    /// Received only: the effect was applied, or dropped as a repeat.
    std::optional<bool> applied;
    std::string consumer;  ///< Received only; empty: the file stands for the consumer.
    /// Received only: when, in any unit that is one for all journals of the consumer.
    std::optional<std::int64_t> at;
    JournalState state = JournalState::kCommitted;
};

/// Reads `{"id":…,"key":…,"n":…,"applied":…,"consumer":…,"at":…,
/// "state":…}`; only `id` is required, other fields are ignored. The error says what is wrong, not
/// where.
Result<JournalLine> parse_journal_line(std::string_view line);

/// What `Verifier` found. Each count is of distinct events, `repeats` of lines.
struct Verdict {
    std::int64_t lost = 0;             ///< Committed, not dead, missing at a consumer.
    std::int64_t ghosts = 0;           ///< Received, but never committed.
    std::int64_t out_of_order = 0;     ///< First received after a later one of the same key.
    std::int64_t repeats_applied = 0;  ///< Applied more than once by one consumer.
    std::int64_t never_applied = 0;    ///< Committed, not dead, dropped by a consumer as a repeat
                                       ///< of what it did not apply.
    std::int64_t dead_letters = 0;     ///< Given up on, counted once for each route.
    std::int64_t excused = 0;          ///< Committed, missing or dropped at a consumer, and some
                                       ///< route's dead letter was taken, of whichever route.
    std::int64_t repeats = 0;          ///< Lines that repeat an event at the same consumer.
    std::int64_t produced = 0;         ///< Committed events.
    std::int64_t received = 0;         ///< Received lines, repeats included.
    std::int64_t uncertain = 0;        ///< Events known at some place only by an intent.
    std::int64_t unordered_keys = 0;   ///< Keys, some order of which the journals do not say.

    [[nodiscard]] bool ok() const {
        return lost == 0 && ghosts == 0 && out_of_order == 0 && repeats_applied == 0 &&
               never_applied == 0;
    }
};

/// One event at fault, for the report.
struct VerifyFault {
    enum class Kind : std::uint8_t { kLost, kGhost, kOutOfOrder, kRepeatApplied, kNeverApplied };
    Kind kind = Kind::kLost;
    std::string id;
    std::string key;
    std::optional<std::int64_t> n;
    std::string consumer;
};

/// Two events of a key, of which nobody can say in which order they arrived.
struct UnprovedOrder {
    enum class Why : std::uint8_t {
        kSameN,            ///< Both have the same n.
        kSeveralJournals,  ///< They are in two journals, whose lines do not both say when.
    };
    Why why = Why::kSameN;
    std::string id;  ///< One of them.
    std::string key;
    std::string consumer;
};

/// Gives each distinct text a small number. Exact: texts are compared, not only their hashes.
class TextTable {
  public:
    static constexpr std::uint32_t kNone = UINT32_MAX;
    [[nodiscard]] std::uint32_t find(std::string_view text) const;
    std::uint32_t add(std::string_view text);  ///< The number of `text`, new or known.
    [[nodiscard]] std::string_view text(std::uint32_t number) const;
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(rows_.size()); }

  private:
    struct Row {
        std::uint64_t hash = 0;
        const char* data = nullptr;
        std::uint32_t size = 0;
    };
    [[nodiscard]] std::size_t slot_of(std::string_view text, std::uint64_t hash) const;
    void grow();
    std::vector<Row> rows_;
    std::vector<std::uint32_t> slots_;
    std::deque<std::string> blocks_;
};

/// Compares what producers committed with what consumers saw. Feed every produced line, then the
/// dead letters, then the received files, each in file order; then `finish`. Between two files of
/// one consumer, order is judged by the lines' `at`, and they have to be fed in its order.
/// Takes about 180 bytes for each distinct event. Not thread-safe.
class Verifier {
  public:
    static constexpr std::size_t kMaxConsumers = 64;
    static constexpr std::int64_t kMaxFaultsKept = 20;

    /// An error when the id was produced before with another key or n.
    Status produced(const JournalLine& line);

    /// One dead letter of the event, in one route: it excuses one consumer. Where no route took
    /// the event (`unmatched`) it excuses all.
    void dead_letter(std::string_view id, bool unmatched = false);

    /// Starts a received file, or goes on with it. The file is a consumer of its own, also when it
    /// is empty, except that lines with a `consumer` belong to that one, whatever file they are in.
    /// Every consumer has to receive every event.
    Status begin_received(std::string_view file_name);
    Status received(const JournalLine& line);

    /// Call once.
    Result<Verdict> finish();

    /// The first `kMaxFaultsKept` faults of each kind.
    [[nodiscard]] const std::vector<VerifyFault>& faults() const { return faults_; }
    /// The same of what was excused, with each consumer where it is missing.
    [[nodiscard]] const std::vector<VerifyFault>& excused() const { return excused_; }
    /// The same of what is uncertain, with each consumer that an intent alone speaks for; with none
    /// where it is not known whether the event was committed.
    [[nodiscard]] const std::vector<VerifyFault>& uncertain() const { return uncertain_; }
    /// The first `kMaxFaultsKept` of `unordered_keys`.
    [[nodiscard]] const std::vector<UnprovedOrder>& unproved_orders() const { return unproved_; }
    /// Consumers that said of no event what became of it: nothing is proved of them.
    [[nodiscard]] std::vector<std::string> with_intents_alone() const;

  private:
    struct Item {
        std::uint64_t placed = 0;    ///< One bit per consumer: its place in the order is known.
        std::uint64_t received = 0;  ///< A line that is no intent.
        std::uint64_t applied = 0;
        std::uint64_t pending = 0;    ///< An intent that was not rolled back.
        std::uint64_t undecided = 0;  ///< A line that does not say whether it was applied.
        std::optional<std::int64_t> n;
        std::uint32_t key = TextTable::kNone;
        std::uint16_t dead = 0;
        bool unmatched = false;
        bool produced = false;  ///< Some produced line names it.
        bool committed = false;
        bool rolled_back = false;
        bool ghost = false;
        bool late = false;
        bool applied_twice = false;
    };

    /// The latest of a key at a consumer, over its files.
    struct Latest {
        std::int64_t n = kNothing;
        std::optional<std::int64_t> at;
        std::uint32_t file = 0;
    };
    static constexpr std::int64_t kNothing = -1;
    struct Consumer {
        std::vector<Latest> latest;                                ///< By key number.
        std::map<std::uint32_t, std::vector<std::int64_t>> files;  ///< Highest n, by key number.
        std::int64_t intents = 0;
        std::int64_t received = 0;
    };

    Item& item(std::string_view id);
    Result<std::uint32_t> consumer_number(std::string_view name);
    void note_attempt(std::uint32_t id, std::uint32_t consumer, const JournalLine& line);
    void check_order(std::uint32_t id, std::uint32_t consumer, std::optional<std::int64_t> at);
    void leave_unproved(UnprovedOrder::Why why, std::uint32_t id, std::uint32_t consumer);
    void check_repeat(std::uint32_t id, std::uint32_t consumer, bool applied);
    void check_lost(std::uint32_t id, std::uint64_t all_consumers);
    [[nodiscard]] static bool exists(const Item& event);
    void note_uncertain(std::uint32_t id);
    void keep_fault(VerifyFault::Kind kind, std::int64_t count, std::uint32_t id,
                    std::uint32_t consumer);
    [[nodiscard]] VerifyFault fault_of(VerifyFault::Kind kind, std::uint32_t id,
                                       std::uint32_t consumer) const;

    TextTable ids_;
    TextTable keys_;
    TextTable consumer_names_;
    TextTable files_;
    std::vector<Item> items_;                              ///< By id number.
    std::vector<Consumer> consumers_;                      ///< By number.
    std::unordered_map<std::uint64_t, int> open_intents_;  ///< Of an event at a consumer.
    std::vector<bool> is_unordered_;                       ///< By key number.
    std::vector<bool> has_lines_;                          ///< By file number.
    std::uint32_t file_ = 0;
    std::vector<VerifyFault> faults_;
    std::vector<VerifyFault> excused_;
    std::vector<VerifyFault> uncertain_;
    std::vector<UnprovedOrder> unproved_;
    Verdict verdict_;
};

}  // namespace outbox::core
