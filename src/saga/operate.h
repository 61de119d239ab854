#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "consumer/operator_sql.h"
#include "saga/machine.h"

namespace outbox::saga {

/// Which sagas; what is empty or 0 does not restrict.
struct SagaFilter {
    std::vector<std::string> ids;
    std::string name;
    std::string state;
    std::int64_t stuck_for_s = 0;  ///< Open, and without progress for at least this long.
};

/// One row of outbox_saga, and what became of messages for it.
struct SagaInfo {
    Instance instance;  ///< Without data, unless asked for.
    std::string topic;
    std::string requested;
    std::int64_t due_us = 0;  ///< 0: no timer.
    std::int64_t started_us = 0;
    std::int64_t updated_us = 0;
    std::int64_t finished_us = 0;   ///< 0: it is open.
    double idle_s = 0;              ///< Since its last progress, by the database's clock.
    std::int64_t dead_letters = 0;  ///< Messages of it that a consumer here gave up on,
    std::string dead_error;         ///< and the last one's error.
};

/// Why the request would change nothing; empty: it can be made. What it would do is in `effect`.
[[nodiscard]] std::string objection(const SagaInfo& saga, Request request);
[[nodiscard]] std::string effect(const SagaInfo& saga, Request request);

/// What an operator asks of outbox_saga. Works beside the service that leads the sagas, and without
/// it. Used by one thread; calls block on the database.
class SagaOperations {
  public:
    /// `os_user`: whom the audit names when something is asked for.
    explicit SagaOperations(std::unique_ptr<consumer::Sql> sql, std::string os_user = {})
        : sql_(std::move(sql)), os_user_(std::move(os_user)) {}

    /// False: `migrate` has not made the table here.
    Result<bool> has_table();
    /// Oldest first.
    Result<std::vector<SagaInfo>> sagas(const SagaFilter& filter, std::size_t limit,
                                        bool with_data);
    Result<std::int64_t> count(const SagaFilter& filter);
    /// By name and state.
    Result<std::vector<SagaCount>> counts();
    /// Writes the request as an event to the saga's own topic, and a line of outbox_audit: the
    /// service that leads it applies it, in its turn.
    Status ask(const SagaInfo& saga, Request request);

  private:
    [[nodiscard]] consumer::Where where_of(const SagaFilter& filter) const;

    std::unique_ptr<consumer::Sql> sql_;
    std::string os_user_;
};

}  // namespace outbox::saga
