#include "brokers/nats/sink.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "brokers/nats/answers.h"
#include "brokers/nats/connection.h"
#include "brokers/nats/look.h"
#include "brokers/nats/message.h"
#include "brokers/nats/stream_numbers.h"
#include "net/id_suffix.h"
#include "net/remembered.h"

namespace outbox::nats {
namespace {

constexpr std::string_view kName = "outbox relay";
constexpr std::string_view kPart = "subject ";

std::string seconds(std::chrono::milliseconds time) {
    return std::to_string(time.count() / 1000) + " s";
}

class Link final : public net::ConfirmedLink {
  public:
    Link(const NatsConfig& config, std::unique_ptr<Connection> connection,
         std::shared_ptr<StreamNumbers> numbers)
        : config_(config),
          connection_(std::move(connection)),
          numbers_(std::move(numbers)),
          where_(name_of_host(config.hosts[connection_->host()])),
          suffix_(config.dedup ? net::id_suffix(config.producer) : std::string()) {}

    [[nodiscard]] std::size_t host() const override { return connection_->host(); }
    [[nodiscard]] std::size_t max_window() const override { return SIZE_MAX; }
    std::optional<ErrorInfo> send(std::uint64_t number, const spi::Record& record) override;
    void ping() override { connection_->ping(); }
    [[nodiscard]] std::size_t unsent() const override { return connection_->unsent(); }
    [[nodiscard]] std::uint64_t heard() const override { return connection_->heard(); }
    std::optional<ErrorInfo> exchange(std::vector<net::Answer>& out) override;
    void wait(std::chrono::milliseconds most) const override { connection_->wait(most); }
    [[nodiscard]] std::optional<ErrorInfo> unanswered(std::uint64_t,
                                                      std::chrono::milliseconds time) override {
        return to_error({"UNANSWERED", "no acknowledgement for " + seconds(time)}, where_);
    }
    [[nodiscard]] ErrorInfo silence(std::chrono::milliseconds time) const override {
        return to_error({"SILENT", "no answer for " + seconds(time)}, where_);
    }

  private:
    [[nodiscard]] std::optional<ErrorInfo> error_of(const Frame& answer) const;
    void note(std::uint64_t number, const Frame& answer);

    const NatsConfig config_;
    const std::unique_ptr<Connection> connection_;
    const std::shared_ptr<StreamNumbers> numbers_;
    std::uint64_t last_sent_ = 0;
    const std::string where_;
    const std::string suffix_;  // of ids
    std::string headers_;       // of a message
};

std::optional<ErrorInfo> Link::send(std::uint64_t number, const spi::Record& record) {
    if (auto why = why_not_carried(record)) {
        return ErrorInfo{
            ErrorCode::kRecordRefused,
            Advice::kDeadLetter,
            {},
            "event " + std::string(record.id) + " fits no message of NATS: " + *std::move(why)};
    }
    write_headers(record, suffix_, config_.stream, headers_);
    const std::size_t bytes = headers_.size() + record.value.size();
    const std::size_t most = connection_->server().max_payload;
    // The server would close the connection.
    if (most > 0 && bytes > most) {
        return to_error({"TOO LARGE", "event " + std::string(record.id) + " makes a message of " +
                                          std::to_string(bytes) + " bytes, and it takes " +
                                          std::to_string(most)},
                        where_);
    }
    connection_->publish(record.topic, connection_->reply_subject(number), headers_, record.value);
    last_sent_ = number;
    return std::nullopt;
}

std::optional<ErrorInfo> Link::exchange(std::vector<net::Answer>& out) {
    auto ended = connection_->exchange();
    while (true) {
        std::optional<Fault> fault;
        while (const auto answer = connection_->next(fault)) {
            const auto number = connection_->number_of(answer->subject);
            if (!number) continue;
            out.push_back({.number = *number, .error = error_of(*answer)});
            if (!out.back().error) note(*number, *answer);
        }
        if (!fault) break;
        // Said without a number, and the connection stays.
        if (fault->subject.empty()) {
            ended = std::move(fault);
            break;
        }
        out.push_back({.topic = fault->subject, .error = to_error(*fault, where_)});
    }
    if (ended) return to_error(*ended, where_);
    return std::nullopt;
}

std::optional<ErrorInfo> Link::error_of(const Frame& answer) const {
    auto fault = fault_of_answer(answer.payload);
    if (HeaderLines(answer.headers).status() == "503") {
        fault = Fault{"NO RESPONDERS", "no stream takes it"};
    }
    if (fault) return to_error(*fault, where_);
    return std::nullopt;
}

// Two routes to one server are told apart by their producers.
std::string name_of(const NatsConfig& config) {
    std::string name;
    for (const net::Host& host : config.hosts) name += name_of_host(host) + ' ';
    return name + config.producer;
}

void Link::note(std::uint64_t number, const Frame& answer) {
    if (const auto accepted = read_accepted(answer.payload)) {
        numbers_->accepted(*accepted, number, last_sent_, where_);
    }
}

}  // namespace

NatsSink::NatsSink(const NatsConfig& config)
    : NatsSink(config, net::remembered<StreamNumbers>(name_of(config))) {}

NatsSink::NatsSink(const NatsConfig& config, std::shared_ptr<StreamNumbers> numbers)
    : ConfirmedSink(
          {config.max_records, config.max_bytes, config.stuck_after}, std::string(kPart),
          [config, numbers](std::size_t host) -> Result<std::unique_ptr<net::ConfirmedLink>> {
              auto connection = Connection::open(config, host % config.hosts.size(), kName);
              if (!connection.ok()) return connection.error();
              return std::unique_ptr<net::ConfirmedLink>(
                  new Link(config, std::move(*connection), numbers));
          }),
      config_(config),
      numbers_(std::move(numbers)) {
    numbers_->begin();
}

void NatsSink::report(spi::SinkReport& out) {
    ConfirmedSink::report(out);
    numbers_->report(out);
}

const spi::SinkCapabilities& NatsSink::capabilities() const {
    return kCapabilities;
}

Status NatsSink::check() {
    return look_at_server(config_);
}

// Another server of the cluster at the end of the URL leads to the same data.
Result<std::string> NatsSink::destination() {
    std::string name = name_of_host(config_.hosts.front());
    if (!config_.stream.empty()) name += ", stream " + config_.stream;
    return name;
}

}  // namespace outbox::nats
