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

#include "brokers/kafka/client.h"
#include "brokers/kafka/config.h"
#include "brokers/kafka/topics.h"
#include "brokers/kafka/under_way.h"

namespace outbox::kafka {

inline const spi::SinkCapabilities kCapabilities{"kafka", spi::Guarantee::kAtLeastOnce,
                                                 /*fail_stop_order=*/true, /*durable=*/true,
                                                 /*across_topics=*/false};

/// Publishes to Kafka through an idempotent producer, and a second one for what is in doubt.
/// README.md says how order is kept when something fails. Not thread-safe.
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

    void more_follows(bool more) override { more_follows_ = more; }
    void outcomes_may_wait(bool may) override { outcomes_may_wait_ = may; }

    /// How often the main producer was rebuilt.
    [[nodiscard]] std::uint64_t rebuilds() const { return rebuilds_; }

  private:
    enum class Sent : std::uint8_t { kDone, kFull };
    struct Producer {
        std::unique_ptr<Client> client;  // null until a record needs it
        std::size_t produced = 0;        // records inside it
        std::vector<Events::Refusal> refused;
        std::optional<Fault> fatal;
        [[nodiscard]] bool broken() const { return fatal || !refused.empty(); }
    };
    using Guilty = std::map<std::uint32_t, ErrorInfo>;  // by slot

    explicit KafkaSink(KafkaConfig config);
    Status open_client(Producer& producer);
    [[nodiscard]] bool broken() const { return main_.broken() || careful_.broken(); }

    // sink.cpp: records on their way
    [[nodiscard]] Sent send(std::uint32_t slot, Topic& topic, const spi::Record& record);
    [[nodiscard]] Sent produce(std::uint32_t slot, Topic& topic, const spi::Record& record,
                               bool trial);
    [[nodiscard]] bool too_large(const Topic& topic, const spi::Record& record) const;
    [[nodiscard]] std::int32_t choose_partition(Topic& topic, const spi::Record& record);
    [[nodiscard]] bool has_room(const Partition& partition, std::size_t bytes) const;
    void fail_slot(std::uint32_t slot, ErrorInfo error, std::string part = {});
    void fail_behind(std::uint32_t slot);
    void drive(std::chrono::milliseconds wait, spi::Completions& out);
    void take(Producer& producer, spi::Completions& out);
    void acknowledged(std::uint32_t slot, spi::Completions& out);
    void returned(std::uint32_t slot);
    void tell_failures(spi::Completions& out);
    [[nodiscard]] std::chrono::milliseconds wait(std::chrono::milliseconds max_wait) const;

    // sink_topics.cpp: what is known of topics, and records that wait for it
    [[nodiscard]] bool is_given_up(const Topic& topic) const;
    [[nodiscard]] bool gathers(const Topic& topic) const;
    void send_gathered();
    void park(std::uint32_t slot, Topic& topic, const spi::Record& record);
    void unpark(Topic& topic);
    void fail_parked(Topic& topic, const ErrorInfo& error, const std::string& part);
    void close_handles(Topic& topic);
    void end_careful(Topic& topic);
    void ask(Topic& topic);
    void ask_again();
    void ask_again_soon(Topic& topic);
    void take_answer(const Events::TopicAnswer& answer);
    void topic_exists(Topic& topic);
    void topic_missing(Topic& topic, const Fault& fault);
    [[nodiscard]] Fault load_partitions(Topic& topic);

    // sink_failures.cpp
    void set_down(std::optional<Trouble>& down, ErrorInfo error) const;
    void look_for_silence(spi::Completions& out);
    void give_up_silent(spi::Completions& out);
    void give_up(spi::Completions& out);
    void rebuild(Producer& producer, spi::Completions& out);
    [[nodiscard]] bool blame(const Producer& producer, Guilty& guilty);
    void go_careful(Topic& topic);
    void settle(Producer& producer, spi::Completions& out);
    void fail_all(const Producer& producer, const Guilty& guilty,
                  const std::optional<ErrorInfo>& cause, spi::Completions& out);
    void replace_drained_client(spi::Completions& out);
    void forget(Producer& producer);
    [[nodiscard]] std::string where() const { return "Kafka at " + config_.bootstrap_servers; }

    KafkaConfig config_;
    std::size_t batch_bytes_;
    bool compresses_;
    Producer main_;
    // One record in a batch, so that a refusal names the guilty one, and apart from the main one,
    // so that it ends nothing else: for topics of which a batch was refused, and to try what is
    // down.
    Producer careful_;
    Time careful_used_;
    Topics topics_;
    UnderWay under_way_;
    std::vector<spi::FailedRecord> failed_;  // not told yet; nothing is published meanwhile
    spi::Completions pending_;               // came in during `check`
    Events events_;
    std::optional<Fault> connection_;  // why the brokers cannot be reached
    bool all_brokers_down_ = false;
    bool shrinking_ = false;  // a topic takes smaller batches: drain, then a new producer
    bool asks_again_ = false;
    bool more_follows_ = false;  // so that records are gathered
    bool gathering_ = false;     // some topic has such
    bool outcomes_may_wait_ = false;
    bool unparks_again_ = false;  // something is parked that need not wait any more
    Time now_;
    std::uint64_t oldest_ = 0;  // the sequence of the oldest record, and since when it is that
    Time oldest_since_;
    Time acknowledged_at_;  // the last time
    std::uint64_t rebuilds_ = 0;
};

/// A sink for `kafka://host:port,...`; `options` as `make_config` takes them.
Result<std::unique_ptr<spi::Sink>> make_kafka_sink(
    std::string_view url, const std::map<std::string, std::string>& options);

}  // namespace outbox::kafka
