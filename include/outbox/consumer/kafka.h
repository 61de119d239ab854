#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <outbox/consumer/mailbox.h>
#include <outbox/limits.h>

namespace outbox {

/// What a `KafkaConsumer` reads and how it applies it. Copied by the function that makes one, which
/// throws `Error` kConfigInvalid for values out of range. Limits hold for one member.
struct KafkaConsumerOptions {
    /// What makes a record a repeat.
    enum class Mode : std::uint8_t {
        kInbox,   ///< Its event's id is in outbox_inbox: drops the broker's and the relay's
                  ///< repeats.
        kOffset,  ///< Its offset was applied (outbox_inbox_offsets): constant space, and a member
                  ///< that lost its partition cannot commit; serial in each partition. The relay's
                  ///< repeats have other offsets and are NOT dropped, so `exactly_once_wire` must
                  ///< be set.
        kInboxAndOffset  ///< Both: drops all repeats and fences; serial in each partition.
    };
    std::string brokers;              ///< "host:port,host:port".
    std::string group;                ///< The consumer group.
    std::vector<std::string> topics;  ///< At least one.
    std::string consumer;             ///< The inbox's name for us; empty: the group.
    Mode mode = Mode::kInbox;
    MessageFormat format = MessageFormat::kAuto;

    /// Where payloads are that messages refer to.
    ClaimStore claims = {};

    /// Who is told of what is applied, for tracing.
    SpanExport spans = {};
    bool exactly_once_wire = false;  ///< What writes the topics never repeats an event.

    std::size_t workers = 2;  ///< Threads, each with a connection. Records of a key go to one.
    std::size_t transaction_size = 100;  ///< Records in one transaction; see MailboxOptions.
    /// Records taken and not finished; then reading pauses. As many more may wait behind failing
    /// ones of their keys; then only the partitions with more than their share of these pause.
    std::size_t max_in_flight = 10'000;
    std::size_t max_in_flight_bytes = std::size_t{16} << 20;
    std::uint32_t max_attempts = 5;
    std::int64_t retry_base_ms = 200;
    std::int64_t retry_max_ms = 60'000;
    std::int64_t commit_interval_ms = 1'000;  ///< How often finished offsets go to the broker.
    std::int64_t shutdown_grace_ms = 30'000;  ///< For transactions under way, when a partition is
                                              ///< handed over.
    int connect_timeout_s = kConnectTimeoutS;
    std::int64_t inbox_retention_s = 0;  ///< As MailboxOptions.

    /// More settings of librdkafka, by its names. Those that the guarantee rests on are refused
    /// (`kGuaranteeRefused`).
    std::map<std::string, std::string> kafka;

    /// One call at a time, from any of the consumer's threads; must not throw. kActive and kStandby
    /// say that partitions were given or taken; kDisconnected also that the brokers are away.
    std::function<void(const ConsumerReport&)> on_report = {};
};

/// Applies the records of Kafka topics, each exactly once in effect: effect and inbox row (and
/// offset) are one transaction of the consumer's database, and only after its commit the offset is
/// committed to Kafka. Reads each format that the relay writes; in `raw` the header `id` is the
/// message's id and the other headers become `Message::headers_json`. The offset is
/// `Message::position`.
///
/// Records of a key are applied in their order, several keys of a partition at the same time; the
/// offset committed is that below which all is finished. Failures as `MailboxConsumer`: a key whose
/// record failed waits, others go on; after `max_attempts`, and at once for a record without an id
/// or with advice dead_letter, it goes to outbox_inbox_dead_letters. A record without an id, or
/// with one that a database cannot keep, has "topic/partition/offset@milliseconds" for one there.
///
/// Members of a group share the partitions (cooperative rebalancing). A slow handler keeps its
/// partitions: reading pauses, polling goes on. A partition is handed over when the transactions
/// under way on it have ended; a member that is killed or cut off repeats at most what it had not
/// committed to Kafka, and the inbox drops it.
///
/// Made by `libpq_kafka_consumer` or `sqlite_kafka_consumer` (outbox/adapters/). Thread safety:
/// `stop`, `stats` and `lag` from any thread; the rest from one.
class KafkaConsumer {
  public:
    class Impl;
    explicit KafkaConsumer(std::unique_ptr<Impl> impl);
    KafkaConsumer(KafkaConsumer&& other) noexcept;
    KafkaConsumer& operator=(KafkaConsumer&& other) noexcept;
    ~KafkaConsumer();

    /// Blocks until `stop`: transactions under way are finished, offsets committed, the group is
    /// left. Once only. Throws `Error` when the database cannot be used at the start, and what a
    /// handler throws with advice `stop`; later what a person has to mend: a right that is missing
    /// (`kNoRights`), a member that Kafka has put out for good (`kSinkClosed`: another one has its
    /// group.instance.id). Database and brokers lost later are tried for ever.
    void run();

    /// Ends `run`. Safe in a signal handler that does not outlive the consumer.
    void stop() noexcept;

    [[nodiscard]] ConsumerStats stats() const noexcept;

    /// Records in our partitions that are not finished, as of the last fetch.
    [[nodiscard]] std::int64_t lag() const noexcept;

  private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace outbox
