#include "brokers/mqtt/sink.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "brokers/mqtt/connection.h"
#include "brokers/mqtt/message.h"
#include "brokers/mqtt/packet_ids.h"

namespace outbox::mqtt {
namespace {

constexpr std::string_view kPart = "topic ";
constexpr std::uint8_t kFirstError = 0x80;
constexpr std::uint8_t kNobodySubscribes = 0x10;

class Link final : public net::ConfirmedLink {
  public:
    Link(const MqttConfig& config, std::unique_ptr<Connection> connection)
        : config_(config),
          connection_(std::move(connection)),
          where_(name_of_host(config.hosts[connection_->host()])),
          window_(std::min(config.max_records, connection_->receive_max())) {}

    [[nodiscard]] std::size_t host() const override { return connection_->host(); }
    [[nodiscard]] std::size_t max_window() const override { return window_; }
    std::optional<ErrorInfo> send(std::uint64_t number, const spi::Record& record) override;
    void ping() override { connection_->ping(); }
    [[nodiscard]] std::size_t unsent() const override { return connection_->unsent(); }
    [[nodiscard]] std::uint64_t heard() const override { return connection_->heard(); }
    std::optional<ErrorInfo> exchange(std::vector<net::Answer>& out) override;
    void wait(std::chrono::milliseconds most) const override { connection_->wait(most); }
    [[nodiscard]] std::optional<ErrorInfo> unanswered(std::uint64_t,
                                                      std::chrono::milliseconds) override {
        return std::nullopt;
    }
    [[nodiscard]] ErrorInfo silence(std::chrono::milliseconds time) const override {
        return to_error({"SILENT", "no answer for " + std::to_string(time.count() / 1000) + " s"},
                        where_);
    }

  private:
    [[nodiscard]] std::optional<ErrorInfo> error_of(const Packet& answer) const;

    const MqttConfig config_;
    const std::unique_ptr<Connection> connection_;
    const std::string where_;
    const std::size_t window_;
    PacketIds ids_;
    Properties properties_;  // of a message
};

std::optional<ErrorInfo> Link::send(std::uint64_t number, const spi::Record& record) {
    if (auto why = properties_.set(record)) {
        return ErrorInfo{
            ErrorCode::kRecordRefused,
            Advice::kDeadLetter,
            {},
            "event " + std::string(record.id) + " fits no message of MQTT: " + *std::move(why)};
    }
    Publish message{.topic = record.topic,
                    .retain = config_.retain,
                    .properties = properties_.list(),
                    .payload = record.value,
                    .content_type = record.content_type};
    const std::size_t bytes = bytes_of(message);
    // The broker would close the connection.
    if (const std::size_t most = connection_->max_packet(); most > 0 && bytes > most) {
        return to_error({"TOO LARGE", "event " + std::string(record.id) + " makes a packet of " +
                                          std::to_string(bytes) + " bytes, and it takes " +
                                          std::to_string(most)},
                        where_);
    }
    message.id = ids_.next(number);  // no window is larger than there are ids
    connection_->publish(message);
    return std::nullopt;
}

std::optional<ErrorInfo> Link::exchange(std::vector<net::Answer>& out) {
    auto ended = connection_->exchange();
    std::optional<Fault> fault;
    while (const auto answer = connection_->next(fault)) {
        if (answer->kind != Packet::Kind::kAnswer) continue;
        const auto number = ids_.answered(answer->id);
        if (number) out.push_back({.number = *number, .error = error_of(*answer)});
    }
    if (fault) ended = std::move(fault);
    if (ended) return to_error(*ended, where_);
    return std::nullopt;
}

std::optional<ErrorInfo> Link::error_of(const Packet& answer) const {
    const bool unheard = answer.code == kNobodySubscribes && config_.require_subscriber;
    if (answer.code < kFirstError && !unheard) return std::nullopt;
    return to_error(fault_of_code(answer.code, answer.reason), where_);
}

}  // namespace

MqttSink::MqttSink(const MqttConfig& config)
    : ConfirmedSink(
          {config.max_records, config.max_bytes, config.stuck_after}, std::string(kPart),
          [config](std::size_t host) -> Result<std::unique_ptr<net::ConfirmedLink>> {
              auto connection = Connection::open(config, host % config.hosts.size());
              if (!connection.ok()) return connection.error();
              return std::unique_ptr<net::ConfirmedLink>(new Link(config, std::move(*connection)));
          }),
      config_(config) {}

const spi::SinkCapabilities& MqttSink::capabilities() const {
    return kCapabilities;
}

Status MqttSink::check() {
    return Connection::open(config_, 0).status();
}

// Another server at the end of the URL leads to the same broker.
Result<std::string> MqttSink::destination() {
    return name_of_host(config_.hosts.front());
}

}  // namespace outbox::mqtt
