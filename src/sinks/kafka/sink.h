#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "sinks/kafka/client.h"
#include "sinks/kafka/config.h"
#include "sinks/kafka/topics.h"
#include "sinks/kafka/under_way.h"

namespace outbox::sinks::kafka {

/// Publishes to Kafka through one idempotent producer. README.md says how order is kept when
/// something fails. Not thread-safe.
class KafkaSink final : public spi::Sink {
  public:
    /// Errors: kConfigInvalid/stop when librdkafka refuses the configuration.
    static Result<std::unique_ptr<KafkaSink>> open(KafkaConfig config);
    ~KafkaSink() override = default;

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override;
    Status check() override;
    Result<std::string> destination() override;
    [[nodiscard]] bool publish(const spi::Record& record) override;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override;

    /// How often the producer was rebuilt.
    [[nodiscard]] std::uint64_t rebuilds() const { return rebuilds_; }

  private:
    enum class Sent : std::uint8_t { kDone, kFull };
    struct Refusal {
        std::uint32_t slot = kNoSlot;  // kNoSlot: no record is known to be the cause
        Fault fault;
    };

    explicit KafkaSink(KafkaConfig config);
    Status open_client();

    [[nodiscard]] Sent send(std::uint32_t slot, Topic& topic, const spi::Record& record);
    [[nodiscard]] bool too_large(const Topic& topic, const spi::Record& record) const;
    [[nodiscard]] bool is_given_up(const Topic& topic) const;
    void park(std::uint32_t slot, Topic& topic, const spi::Record& record);
    void unpark(Topic& topic);
    void fail_slot(std::uint32_t slot, ErrorInfo error);

    void ask(Topic& topic);
    void ask_again();
    void take_answer(const Events::TopicAnswer& answer);
    void topic_missing(Topic& topic, const Fault& fault);
    void fail_parked(Topic& topic, const ErrorInfo& error);
    void close_handle(Topic& topic);

    void take(spi::Completions& out);
    void tell_failures(spi::Completions& out);
    [[nodiscard]] bool unreachable();
    [[nodiscard]] std::chrono::milliseconds wait(std::chrono::milliseconds max_wait) const;
    void settle(spi::Completions& out);
    void fail_all(const Refusal& cause, spi::Completions& out);
    void rebuild(spi::Completions& out);
    void give_up(spi::Completions& out);
    void replace_drained_client(spi::Completions& out);
    void forget_client();

    KafkaConfig config_;
    std::size_t batch_bytes_;
    bool compresses_;
    std::unique_ptr<Client> client_;  // null between a rebuild and the next record
    Topics topics_;
    UnderWay under_way_;
    std::size_t produced_ = 0;               // under way inside librdkafka
    std::vector<spi::FailedRecord> failed_;  // not told yet; nothing is published meanwhile
    spi::Completions pending_;               // came in during `check`
    Events events_;
    std::optional<Refusal> refusal_;
    std::optional<Fault> fatal_;
    std::optional<Fault> connection_;  // why the brokers cannot be reached
    bool all_brokers_down_ = false;
    bool shrinking_ = false;  // a topic takes smaller batches: drain, then a new producer
    bool asks_again_ = false;
    Time now_;
    std::uint64_t oldest_ = 0;  // the sequence of the oldest record, and since when it is that
    Time oldest_since_;
    std::uint64_t rebuilds_ = 0;
};

/// A sink for `kafka://host:port,...`; `options` as `make_config` takes them.
Result<std::unique_ptr<spi::Sink>> make_kafka_sink(
    std::string_view url, const std::map<std::string, std::string>& options);

}  // namespace outbox::sinks::kafka
