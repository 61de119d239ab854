#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "net/end_news.h"
#include "net/end_search.h"
#include "net/waiting.h"

namespace outbox::net {

/// What the server says of messages.
struct Answer {
    std::uint64_t number = 0;  ///< Of the message; 0: all that are under way to `topic`.
    std::string topic = {};
    std::optional<ErrorInfo> error = {};  ///< None: the server has it.
    std::string part = {};  ///< What of the destination the error is of; empty: the topic.
};

/// A connection whose server answers each message by its number, in any order. Nothing blocks but
/// `wait`. Used by one thread.
class ConfirmedLink {
  public:
    ConfirmedLink() = default;
    ConfirmedLink(const ConfirmedLink&) = delete;
    ConfirmedLink& operator=(const ConfirmedLink&) = delete;
    virtual ~ConfirmedLink() = default;

    /// Its place among those that it could have been made to.
    [[nodiscard]] virtual std::size_t host() const = 0;
    /// Messages without an answer, at most.
    [[nodiscard]] virtual std::size_t max_window() const = 0;
    /// Writes a message for `exchange`; an error, with advice dead_letter, where none can carry the
    /// record. Numbers rise by one. The record's views stay valid until the message is answered or
    /// `unanswered`.
    virtual std::optional<ErrorInfo> send(std::uint64_t number, const spi::Record& record) = 0;
    /// Has the server say something, whatever it is.
    virtual void ping() = 0;
    /// Bytes that wait for the socket, and that have come.
    [[nodiscard]] virtual std::size_t unsent() const = 0;
    [[nodiscard]] virtual std::uint64_t heard() const = 0;
    /// Sends and receives what can be at once. An error ends the connection; with advice
    /// dead_letter it was a message that the server would not have, and the largest is taken for
    /// it; with advice retry_destination it may have been one (`EndSearch`).
    virtual std::optional<ErrorInfo> exchange(std::vector<Answer>& out) = 0;
    virtual void wait(std::chrono::milliseconds most) const = 0;

    /// Whether it looks itself for messages that end connections; an end that `exchange` reports is
    /// of none then.
    [[nodiscard]] virtual bool finds_messages() const { return false; }
    /// Whether it was the link that kept a message back, or sent it again, within `time`.
    [[nodiscard]] virtual bool is_held(std::uint64_t /*number*/,
                                       std::chrono::milliseconds /*time*/) const {
        return false;
    }
    /// Why a message has no answer for so long, while the server answers otherwise; it counts as
    /// answered then. Nothing: the connection is as good as silent.
    [[nodiscard]] virtual std::optional<ErrorInfo> unanswered(std::uint64_t number,
                                                              std::chrono::milliseconds time) = 0;
    /// Why nothing at all has come for so long.
    [[nodiscard]] virtual ErrorInfo silence(std::chrono::milliseconds time) const = 0;
};

/// What all such sinks do: they keep a limited number of records under way, tell a server that is
/// away from a topic that is, notice silence, and connect again. A message has failed that has no
/// answer for `stuck_after` while none that was sent before it was acknowledged: a server that
/// works through what it has, however slowly, is waited for. An error with advice
/// retry_destination that is the answer to a message is one of its topic, which is a part of the
/// destination. `poll` blocks as long as `Connect` does where there is no connection. Not
/// thread-safe.
class ConfirmedSink : public spi::Sink {
  public:
    struct Limits {
        std::size_t records = 4'000;                ///< Under way at once.
        std::size_t bytes = std::size_t{32} << 20;  ///< Keys, values and headers of these.
        std::chrono::milliseconds stuck_after{15'000};
    };
    /// Connects to one of the hosts, that with the number `host`, counted on without end, first.
    using Connect = std::function<Result<std::unique_ptr<ConfirmedLink>>(std::size_t host)>;

    using Clock = std::chrono::steady_clock;

    /// `part` is what messages call a topic: "subject ". `now`: by which it waits.
    ConfirmedSink(Limits limits, std::string part, Connect connect,
                  Clock::time_point (*now)() = Clock::now);
    ~ConfirmedSink() override;

    [[nodiscard]] bool publish(const spi::Record& record) final;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) final;
    void report(spi::SinkReport& out) override { news_.report(out); }

  private:
    using Time = Clock::time_point;
    struct Sent {
        Item item;
        /// It was sent, or acknowledged, or the last one before it that is gone was.
        Time alive_at;
        bool settled = false;
    };

    [[nodiscard]] bool is_suspect(const Item& item) const {
        return search_.is_suspect(item.record.id);
    }
    [[nodiscard]] bool is_idle() const { return sent_.empty() && late_.empty(); }
    template <typename Act>
    void for_each_sent(const Act& act);
    template <typename Act>
    void for_each_open(const Act& act);
    void connect(Time now, spi::Completions& out);
    void send(Time now, spi::Completions& out);
    void send(const Item& item, Time now, spi::Completions& out);
    [[nodiscard]] bool send_suspect(Time now, spi::Completions& out);
    [[nodiscard]] EndSearch::Line line() const;
    void receive(Time now, spi::Completions& out);
    void settle(const Answer& answer, Time now, spi::Completions& out);
    void settle(Sent& sent, const Answer& answer, Time now, spi::Completions& out);
    void drop_settled();
    void drop_late();
    void drop_first();
    [[nodiscard]] bool give_up_old(Time now, spi::Completions& out);
    void look_for_silence(Time now, spi::Completions& out);
    void ended(const ErrorInfo& error, Time now, spi::Completions& out);
    void lose(const ErrorInfo& error, Time now, spi::Completions& out, bool bad_probes = false);
    void let_go();
    void blame(const ErrorInfo& error, spi::Completions& out);
    void fail_queue(const ErrorInfo& error, spi::Completions& out, bool bad_probes = false);
    void finish(const Item& item);

    const Limits limits_;
    const std::string part_;
    const Connect connect_;
    Time (*const now_)();
    std::unique_ptr<ConfirmedLink> link_;
    EndSearch search_;
    Waiting waiting_{search_};
    EndNews news_;
    std::deque<Sent> sent_;  // the first is the one with the number `first_`
    std::uint64_t first_ = 1;
    std::size_t open_ = 0;                // of `sent_` and `late_`, without an answer
    bool is_fresh_ = false;               // nothing was ever sent on this connection
    std::map<std::uint64_t, Sent> late_;  // older ones, while many that came later are answered
    std::size_t records_ = 0;             // in all of these, without an outcome
    std::size_t bytes_ = 0;
    std::vector<Answer> answers_;
    std::uint64_t heard_ = 0;  // bytes of the connection, and when they grew last
    Time heard_at_;
    Time asked_at_;                  // when it was last asked for a sign of life
    std::optional<ErrorInfo> down_;  // why there is no connection
    Time next_try_;
    std::uint32_t tries_ = 0;
    std::size_t host_ = 0;
};

}  // namespace outbox::net
