#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "brokers/pulsar/brokers.h"
#include "brokers/pulsar/channel.h"
#include "brokers/pulsar/config.h"
#include "brokers/pulsar/lane.h"
#include "net/confirmed_sink.h"

namespace outbox::pulsar {

/// Publishes to the topics of one cluster, each at the broker that has it, for as long as the
/// connection stands that brokers are asked through. README.md says how.
class Link final : public net::ConfirmedLink {
  public:
    /// `searches` outlive it.
    Link(const PulsarConfig& config, std::unique_ptr<Connection> first, Searches& searches);

    [[nodiscard]] std::size_t host() const override;
    [[nodiscard]] std::size_t max_window() const override { return SIZE_MAX; }
    std::optional<ErrorInfo> send(std::uint64_t number, const spi::Record& record) override;
    void ping() override { brokers_.first().ping(); }
    [[nodiscard]] std::size_t unsent() const override { return brokers_.unsent(); }
    [[nodiscard]] std::uint64_t heard() const override { return brokers_.heard(); }
    std::optional<ErrorInfo> exchange(std::vector<net::Answer>& out) override;
    void wait(std::chrono::milliseconds most) const override;
    [[nodiscard]] bool finds_messages() const override { return true; }
    [[nodiscard]] bool is_held(std::uint64_t number, std::chrono::milliseconds time) const override;
    [[nodiscard]] std::optional<ErrorInfo> unanswered(std::uint64_t number,
                                                      std::chrono::milliseconds time) override;
    [[nodiscard]] ErrorInfo silence(std::chrono::milliseconds time) const override;

  private:
    using Answers = std::vector<net::Answer>;
    using Time = Channel::Time;
    using State = Channel::State;
    static constexpr std::size_t kMostUnsent = std::size_t{1} << 20;  // bytes
    static constexpr std::chrono::milliseconds kTryAgainIn{100};
    // Whose request it is: of a topic, where it is to say how many partitions there are, or of a
    // channel.
    struct Asker {
        Topic* topic = nullptr;
        Channel* channel = nullptr;
    };

    Topic& topic_of(std::string_view called);
    void make_room();
    [[nodiscard]] std::optional<ErrorInfo> why_too_large(const spi::Record& record);
    void ask_for_partitions(Topic& topic);
    void take_partitions(Topic& topic, const Command& answer, Answers& out);
    void distribute(Topic& topic);
    void forget_channels(Topic& topic);

    void enlist(Channel& channel);
    void work();
    // Asks where it is, once it is known that there is such a partition.
    void begin(Channel& channel);
    void look_up(Channel& channel, Connection& at);
    void take_lookup(Channel& channel, const Command& answer, Answers& out);
    void go_to(Channel& channel, const net::Host& broker, bool through_proxy);
    void take_arrived(Answers& out);
    void arrive(Channel& channel, Connection& connection);
    void join(Channel& channel);
    void take_turns(Lane& lane);
    template <typename Test>
    [[nodiscard]] bool any_of(const Lane& lane, const Test& test) const;
    [[nodiscard]] bool has_others(const Lane& lane) const;
    [[nodiscard]] bool is_held_for_suspect(const Lane& lane) const;
    void connect_anew(Lane& lane);
    void send_queue(Channel& channel);
    void send_entry(Channel& channel, std::size_t count);
    [[nodiscard]] std::size_t size_of_next_entry(const Channel& channel) const;

    void talk(Answers& out);
    void end(const ErrorInfo& why);
    [[nodiscard]] bool is_over() const;
    void take(const Connection& from, const Command& command, Answers& out);
    void look_for_new_token(const Connection& from, const Command& command);
    void take_receipt(const Command& command, Answers& out);
    void take_error(const Connection& from, const Asker& asker, const Command& command,
                    Answers& out);
    void take_send_error(const Connection& from, const Command& command, Answers& out);
    std::optional<Asker> take_request(std::uint64_t request);

    // The channel is looked up in a moment.
    void try_again(Channel& channel, const ErrorInfo& why);
    // It is looked up anew, if the topic still has it, and what was sent is sent once more.
    void go_again(Channel& channel, std::optional<ErrorInfo> why, Time not_before);
    void reset(Channel& channel, const ErrorInfo& why, Answers& out);
    void fail(Channel& channel, const ErrorInfo& error, Answers& out);
    void fail(Topic& topic, const ErrorInfo& error, Answers& out);
    void leave(Channel& channel);
    void for_each_at(const Connection& connection, const std::function<void(Channel&)>& act);
    void ended(const Connection& connection, const ErrorInfo& why, Answers& out);
    void ended_idle(const Connection& connection, const ErrorInfo& why, Answers& out);
    void lose(const Connection& connection, const ErrorInfo& why, Answers& out);
    void close(const Connection& connection);
    void look_for_silence(Answers& out);

    const PulsarConfig config_;
    const std::string session_;  // what names of its producers begin with
    Searches& searches_;
    Brokers brokers_;
    std::map<std::string, Lane> lanes_;                                  // by `Brokers::key_of`
    std::map<std::string, std::unique_ptr<Topic>, std::less<>> topics_;  // as events call them
    std::unordered_map<std::uint64_t, Asker> requests_;
    std::unordered_map<std::uint64_t, Channel*> producers_;
    std::vector<Channel*> listed_;
    std::optional<ErrorInfo> end_;  // why it is to end
    Time ends_at_;                  // at the latest
    std::uint64_t last_request_ = 0;
    std::uint64_t last_producer_ = 0;
    Time now_;
    Time next_look_;
    // Of one message, kept so that nothing is allocated for most.
    std::string metadata_;
    std::string payload_;
    std::string line_;
};

}  // namespace outbox::pulsar
