#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/result.h>

namespace outbox::spi {

/// What a sink promises about one event, as the strongest of these that holds.
enum class Guarantee : std::uint8_t {
    kAtLeastOnce,     ///< Repeats are possible after a failure.
    kExactlyOnceKept  ///< A repeat is dropped for as long as the destination keeps the first.
};

/// How the attributes of a CloudEvent travel to a destination, by the binding of its protocol where
/// the CloudEvents specification has one, else as in Kafka.
struct AttributeNames {
    std::string_view prefix = "ce_";  ///< Of the header of each attribute; empty in MQTT.
    /// The header with the media type of the value; empty: `Record::content_type`, for which the
    /// protocol has a place.
    std::string_view content_type = "content-type";
    /// In the binary mode the media type of the data is an attribute as the others are.
    bool type_as_attribute = false;
    /// Values are percent-encoded (HTTP binding, section 3.1.3.2).
    bool percent_encoded = false;
};

/// What a sink can do; the relay, the conformance suite and the docs go by it.
struct SinkCapabilities {
    std::string name;  ///< "kafka", "mailbox", ...
    Guarantee guarantee = Guarantee::kAtLeastOnce;
    /// After a record failed, no record published later on the same key can be accepted. Without
    /// it the relay keeps one record per key under way.
    bool fail_stop_order = false;
    /// Records are durable at the destination once acknowledged (false for null).
    bool durable = true;
    /// `fail_stop_order` holds for the records of a key whatever their topics; else the relay lets
    /// a key finish what is under way before it goes to another topic.
    bool across_topics = true;
    AttributeNames attributes = {};
};

/// One header of a record; any bytes. Valid as long as the record's owner says.
struct HeaderView {
    std::string_view name;
    std::string_view value;
};

/// One record to publish. A view with null `data()` is a null key or a null value.
struct Record {
    std::uint64_t token = 0;  ///< The caller's name for the record; comes back in `Completions`.
    std::string_view topic;
    std::string_view key;
    std::string_view value;
    std::span<const HeaderView> headers;
    std::int64_t position = 0;  ///< For sinks that print it; not a part of the record.

    // What the event says of itself, for destinations that have a place for it; null: it does not.
    std::string_view id;  ///< The dedup key.
    std::string_view event_type = {};
    std::string_view aggregate_type = {};
    std::string_view aggregate_id = {};
    std::string_view tenant_id = {};
    std::string_view routing_key = {};
    std::int64_t occurred_at_us = 0;  ///< Since the Unix epoch; 0: not known.
    std::int32_t partition = -1;      ///< Where the destination has such; -1: by the key.
    std::int64_t timestamp_ms = -1;   ///< Since the Unix epoch; -1: the destination's.
    /// Media type of the value, where `SinkCapabilities::attributes` has no header for it.
    std::string_view content_type = {};
    /// The payload as it is stored, whatever the format makes of it.
    std::string_view payload = {};
    /// Where the record has a reference instead: what the payload is called in the route's object
    /// store; null: it has the payload.
    std::string_view object = {};
    /// The payload's schema: its subject in a registry and its version; null: not told.
    std::string_view schema_id = {};
    std::string_view schema_version = {};
};

/// What became of a record that was not acknowledged. `error.advice` says what the relay does: for
/// `retry_destination` no attempt is counted.
struct FailedRecord {
    std::uint64_t token = 0;
    ErrorInfo error;
    /// The destination refused something while several records were under way and this record is
    /// the likely cause. The relay sends it again alone; only a refusal then counts against it.
    bool suspect = false;
    /// Nothing is wrong with this record or the destination: it lay behind a failed record of its
    /// key. It goes again in its turn, no attempt is counted and the circuit stays as it is.
    bool behind = false;
    /// The part of the destination that is down while others answer, as messages name it ("topic
    /// orders", "topic orders[3]"); empty: the whole of it, or nothing is down. Such a part is a
    /// destination of its own: the keys whose records fail on it wait, one of them is tried now and
    /// then, no attempt is counted, and other keys go on.
    std::string part = {};
    /// The destination was reached, and this record is one that it has failed on before: any other
    /// shows sooner whether it is down.
    bool bad_probe = false;
};

/// Outcomes of published records, each token exactly once.
struct Completions {
    std::vector<std::uint64_t> acknowledged;
    std::vector<FailedRecord> failed;
    void clear() {
        acknowledged.clear();
        failed.clear();
    }
    [[nodiscard]] bool empty() const { return acknowledged.empty() && failed.empty(); }
};

/// What a sink tells of itself, for logs and metrics, beside the outcomes of records.
struct SinkReport {
    enum class Level : std::uint8_t { kInfo, kWarning, kError };
    struct Note {
        Level level = Level::kInfo;
        std::string what;  ///< A stable name.
        std::vector<std::pair<std::string, std::string>> fields;
    };
    bool last = false;        ///< Nobody asks again: what was kept for a later note is told now.
    std::vector<Note> notes;  ///< Since the last time.
    /// Values of metrics by their names, which are few and always the same.
    std::vector<std::pair<std::string_view, std::int64_t>> stats;
};

/// A place where records are published. One thread uses a sink at a time.
class Sink {
  public:
    Sink() = default;
    Sink(const Sink&) = delete;
    Sink& operator=(const Sink&) = delete;
    /// Frees everything at once; records under way have an unknown outcome.
    virtual ~Sink() = default;

    [[nodiscard]] virtual const SinkCapabilities& capabilities() const = 0;

    /// Checks what can be checked before the first record: reachability, rights, existing tables
    /// or topics; changes nothing. Blocks up to the connect timeout. The relay starts without it;
    /// `--check` and half-open circuits call it.
    virtual Status check() = 0;

    /// What the destination calls itself, the same for as long as it holds the same data: a Kafka
    /// cluster's id, a database's system identifier and name, a file's path. The ledger of a route
    /// holds for one destination only. Blocks up to the connect timeout.
    virtual Result<std::string> destination() = 0;

    /// Hands over one record. Never blocks on the destination. The views, headers included, must
    /// stay valid until the record's outcome has been returned by `poll`. False: the sink is
    /// full; poll, then offer the record again.
    [[nodiscard]] virtual bool publish(const Record& record) = 0;

    /// Drives I/O and appends outcomes that are known. Waits up to `max_wait` when there is none
    /// yet; returns early when there is, or after `wake`. A sink that works in batches writes the
    /// batch here and may block for its own request timeout.
    virtual void poll(std::chrono::milliseconds max_wait, Completions& out) = 0;

    /// Whether more follows at once than was published so far, as where a backlog is read: a sink
    /// may then keep records for some milliseconds until batches are full. Called before a
    /// `publish`, when it has changed; false at first.
    virtual void more_follows(bool /*more*/) {}

    /// Whether nothing waits for outcomes. A sink whose I/O goes on by itself may then return from
    /// `poll` a millisecond after the first of them, so that not each one wakes the caller. Called
    /// before a `poll`, when it has changed; false at first.
    virtual void outcomes_may_wait(bool /*may*/) {}

    /// All that it has acknowledged is recorded: none of that comes again after a crash. Called
    /// before a `poll`, once after acknowledgements of which that is true. For sinks where a record
    /// that comes again may become something else than it was, and which then hold back what they
    /// have until this is called; the recording goes on meanwhile.
    virtual void all_recorded() {}

    /// What it does on its own behind what it has acknowledged. Asked about once a second, and at
    /// the end.
    virtual void report(SinkReport& /*out*/) {}
};

}  // namespace outbox::spi
