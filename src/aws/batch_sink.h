#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "aws/client.h"
#include "aws/config.h"
#include "aws/faults.h"

namespace outbox::aws {

/// Sends batches to topics of a service, many at once; each message has an outcome of its own.
/// README.md says how. Not thread-safe.
class BatchSink : public spi::Sink {
  public:
    explicit BatchSink(const Config& config);

    Status check() final;
    Result<std::string> destination() final;
    [[nodiscard]] bool publish(const spi::Record& record) final;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) final;
    void report(spi::SinkReport& out) final;

  private:
    struct Item {
        std::uint64_t token = 0;
        std::string entry;      // of a batch
        std::size_t bytes = 0;  // of its message, as the service counts them
    };
    struct Topic {
        std::string name;
        std::string address;       // empty: to be asked for
        bool asking = false;       // for it
        bool in_turn = false;      // in `turns_`
        std::size_t requests = 0;  // under way
        std::deque<Item> waiting;
    };
    struct Request {
        Topic* topic = nullptr;
        std::vector<Item> items;  // none: it asks for the topic's address
    };

    void forget_idle_topics();
    Topic& topic_of(std::string_view name);
    void take_turn(Topic& topic);
    void start(spi::Completions& out);
    bool ask_for_address(Topic& topic, spi::Completions& out);
    bool send_batch(Topic& topic, spi::Completions& out);
    bool begin(Topic& topic, Call call, std::vector<Item> items, spi::Completions& out);
    void settle(const Answer& answer, spi::Completions& out);
    void settle_address(Topic& topic, const Answer& answer, spi::Completions& out);
    void settle_batch(const Request& request, const Answer& answer, spi::Completions& out);
    void fail(const Topic& topic, const Item& item, const Fault& fault, bool alone,
              spi::Completions& out);
    void fail_waiting(Topic& topic, const Fault& fault, spi::Completions& out);
    void fail_all_waiting(const ErrorInfo& error, spi::Completions& out);
    void finish(const Item& item);
    [[nodiscard]] std::string what(const Topic& topic) const;

    const Config config_;
    const Service& service_;
    const std::string suffix_;  // of ids in FIFO topics
    Client client_;
    std::map<std::string, Topic, std::less<>> topics_;
    std::deque<Topic*> turns_;  // those that have something to be sent
    std::unordered_map<std::uint64_t, Request> requests_;
    std::uint64_t next_request_ = 1;
    std::size_t records_ = 0;  // without an outcome
    std::size_t bytes_ = 0;    // of these
    spi::Completions refused_;
    std::vector<Answer> answers_;
    std::string key_told_;  // why it is not renewed
};

}  // namespace outbox::aws
