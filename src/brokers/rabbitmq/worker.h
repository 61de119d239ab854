#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "brokers/rabbitmq/client.h"
#include "brokers/rabbitmq/config.h"
#include "brokers/rabbitmq/line.h"
#include "brokers/rabbitmq/suspicion.h"
#include "brokers/rabbitmq/ways.h"
#include "core/mutex.h"
#include "net/end_news.h"
#include "net/end_search.h"
#include "net/waiting.h"

namespace outbox::rabbitmq {

struct Outcomes {
    std::vector<std::uint64_t> acknowledged;
    std::vector<spi::FailedRecord> failed;
    std::size_t bytes = 0;  ///< Of the items of both.
};

/// The connection and the thread that alone uses it, because librabbitmq blocks while the broker
/// takes no bytes. What is said here of "the caller" is the relay's thread. The connection is made
/// when there is something to send, and again after it was lost.
class Worker {
  public:
    explicit Worker(const RabbitmqConfig& config);
    /// Ends the connection and waits for the thread: up to the connect timeout where it connects,
    /// else at once.
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    /// Takes over the items; leaves the vector empty. Does not block.
    void take(std::vector<Item>& items);
    /// Moves the outcomes that are known to `out`; waits for one up to `most`.
    void collect(std::chrono::milliseconds most, Outcomes& out);
    /// Why the broker takes nothing at the moment; nothing where it does or nobody knows.
    std::optional<ErrorInfo> blocked();
    /// Of connections that ended, and of few channels.
    void report(spi::SinkReport& out);

  private:
    using Time = std::chrono::steady_clock::time_point;
    using Sent = Line::Sent;
    using Kind = Suspicion::Kind;
    using Channel = Ways::Channel;

    void run();
    bool take_inbox();
    void connect();
    void send_some();
    void send_others();
    [[nodiscard]] std::optional<Item> next();
    bool send(const Item& item);
    [[nodiscard]] bool send_suspect();
    [[nodiscard]] Kind kind_of(const spi::Record& record) const {
        return suspicion_.kind_of(record, now_);
    }
    void wait_for_room(Kind kind, const Item& item);
    void wait_anew();
    [[nodiscard]] net::EndSearch::Line line() const;
    [[nodiscard]] bool is_suspect(const Item& item) const {
        return search_.is_suspect(item.record.id);
    }
    [[nodiscard]] bool may_send() const;
    void listen();
    void obey(const Word& word);
    void settle(Sent& sent, const Word& word);
    void judge_silent();
    void judged(const Sent& sent);
    void look_for_silence();
    [[nodiscard]] bool gives_back_guilty(Channel& channel, const Fault& fault);
    void lost(const Fault& fault);
    [[nodiscard]] bool has_too_many_channels(const Fault& fault);
    void look_for_more_channels();
    void tell_few_channels(std::size_t channels, std::string why);
    void let_go();
    [[nodiscard]] bool goes_again(ErrorInfo& error, bool& bad_probes);
    void fail_all(const ErrorInfo& error, bool bad_probes = false);
    void set_client(std::unique_ptr<Client> client);
    void set_blocked(std::optional<ErrorInfo> error);
    void tell();
    void fail(const Item& item, ErrorInfo error, std::string part = {}, bool bad_probe = false);
    [[nodiscard]] std::string part_of(std::string_view routing_key) const;
    [[nodiscard]] std::string where() const;

    const RabbitmqConfig config_;
    const int wake_;  // an eventfd

    // The thread's own.
    std::unique_ptr<Client> client_;
    Ways ways_;
    std::size_t most_channels_ = Ways::kMost;  // that the user may have,
    Time most_channels_until_;                 // as the broker has said
    Time too_many_channels_at_;                // when it said so last
    std::size_t told_channels_ = Ways::kMost;
    Time channels_told_at_;
    Suspicion suspicion_;
    std::uint64_t serial_ = 0;
    bool is_fresh_ = true;  // nothing was sent on the connection yet
    net::EndSearch search_;
    net::Waiting waiting_{search_};
    bool has_turns_ = false;  // what waits may go later only
    net::EndNews news_;       // for both threads
    std::size_t unlooked_bytes_ = 0;
    bool clogged_ = false;
    Time blocked_since_;
    std::optional<ErrorInfo> blocked_;
    std::optional<ErrorInfo> down_;  // why there is no connection
    Time next_try_;
    std::uint32_t tries_ = 0;
    std::size_t next_host_ = 0;
    std::size_t max_frame_bytes_ = 0;
    std::vector<Word> words_;
    Outcomes out_;
    Time now_;

    core::Mutex mutex_;
    core::Condition came_;  // work for the thread, or an outcome for the caller
    std::vector<Item> inbox_ OUTBOX_GUARDED_BY(mutex_);
    Outcomes outcomes_ OUTBOX_GUARDED_BY(mutex_);
    bool stopping_ OUTBOX_GUARDED_BY(mutex_) = false;
    bool woken_ OUTBOX_GUARDED_BY(mutex_) = false;
    Client* cuttable_ OUTBOX_GUARDED_BY(mutex_) = nullptr;
    Time alive_at_ OUTBOX_GUARDED_BY(mutex_);  // when the thread last came round
    std::size_t under_way_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::optional<ErrorInfo> blocked_told_ OUTBOX_GUARDED_BY(mutex_);
    std::optional<spi::SinkReport::Note> few_channels_ OUTBOX_GUARDED_BY(mutex_);

    std::thread thread_;  // last: it uses all of the above
};

}  // namespace outbox::rabbitmq
