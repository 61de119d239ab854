#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <outbox/consumer/idempotency.h>

#include "core/clock.h"
#include "tests/simulation/judge.h"
#include "tests/simulation/receiving/connection.h"

namespace outbox::simulation {

/// How the services of a history treat requests with an Idempotency-Key.
struct RequestSettings {
    int services = 2;
    int callers = 0;  ///< Each has one request that it repeats until it has an answer.
    IdempotencyOptions options;
    std::int64_t lease_ms = 0;  ///< Above 0: the claim is committed before the work.
    bool together = false;      ///< Claim and completion share their round trips.
    double repeats = 0.3;       ///< Share of answers after which the caller asks once more.
    double others = 0.1;        ///< Share of requests with another body under the same key.
};

/// Processes that answer requests as the docs show it: `Idempotency` around work that claims the
/// key, writes an order and completes the claim; and those who call them, over a network that loses
/// answers. Each key's order is written once, and all answers of a key are one.
class Services {
  public:
    using Connect = std::function<std::unique_ptr<Connection>()>;

    /// `clock`: of the machines that they run on.
    Services(World& world, Judge& judge, Connect connect, const core::Clock& clock,
             const RequestSettings& settings)
        : world_(world),
          judge_(judge),
          connect_(std::move(connect)),
          clock_(clock),
          settings_(settings) {}

    /// Begins a process in the place of one that is gone. `group`: a new one.
    void start(World::Group group);
    [[nodiscard]] bool missing() const;
    [[nodiscard]] std::size_t size() const { return living_.size(); }
    [[nodiscard]] World::Group group(std::size_t index) const { return living_[index]->group; }
    void kill(std::size_t index);
    void pause(std::size_t index, std::int64_t us);
    /// Begins the callers.
    void call();
    /// Every caller has had its answer.
    [[nodiscard]] bool all_answered() const { return asking_ == 0; }
    /// The clock by which leases end was set: which of them still stand is not known.
    void forget_leases();
    /// What the orders say in the end; rows of key and body as they were written.
    void finish(const Rows& orders);
    [[nodiscard]] std::size_t answers() const { return answers_; }

  private:
    struct Process {
        Process(World::Group its_group, const IdempotencyOptions& options)
            : group(its_group), idempotency(options) {}
        World::Group group;
        Idempotency idempotency;
    };
    /// One request under way; shared by who sent it and the process that has it.
    struct Exchange {
        std::string key;
        std::string body;
        std::optional<IdempotentAnswer> answer;
        bool over = false;
    };
    /// What is known of a key.
    struct Key {
        std::string body;  ///< Of the one request that it stands for; empty: not known yet.
        std::optional<IdempotentAnswer> answer;
        std::uint32_t attempt = 0;  ///< Of the last claim with a lease that was committed,
        std::int64_t until_us = 0;  ///< which nobody else may have before then.
    };

    void ask(int caller);
    std::optional<IdempotentAnswer> send(const std::string& key, const std::string& body);
    void serve(Process& process, Exchange& exchange);
    IdempotentAnswer work(Process& process, const IdempotentRequest& request);
    IdempotentAnswer work_in_one(Connection& client, const IdempotentRequest& request);
    IdempotentAnswer work_with_lease(Connection& client, const IdempotentRequest& request);
    static void write_order(Connection& client, const IdempotentRequest& request);
    static IdempotentAnswer answer_to(const IdempotentRequest& request, std::uint32_t attempt);
    void claimed(const IdempotentRequest& request, const IdempotencyClaim& claim,
                 std::int64_t asked_us);
    void answered(const std::string& key, const std::string& body, const IdempotentAnswer& answer);
    void dawdle(std::int64_t most_ms);

    World& world_;
    Judge& judge_;
    const Connect connect_;
    const core::Clock& clock_;
    const RequestSettings settings_;
    std::vector<std::shared_ptr<Process>> living_;
    std::map<std::string, Key> keys_;
    std::int64_t leases_since_us_ = -1;
    int asking_ = 0;
    std::size_t answers_ = 0;
};

}  // namespace outbox::simulation
