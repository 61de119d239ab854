#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <outbox/producer/migrate.h>

#include "tests/webhook/rig.h"

namespace outbox::test {

using Answer = ScriptedReceivers::Answer;
using Events = std::vector<Rig::Written>;

inline constexpr std::int64_t kHourMs = 3'600'000;

inline webhook::DispatchOptions with_a_long_lease() {
    webhook::DispatchOptions options;
    options.lease_ttl_ms = 30 * 24 * kHourMs;
    options.lease_renew_ms = kHourMs;
    return options;
}

// The dispatcher over both databases, with receivers and clocks that the test moves.
class DispatcherTest : public testing::TestWithParam<Backend> {
  protected:
    void SetUp() override {
        database_ = make_database(GetParam());
        url_ = database_->url();
        MigrateOptions options;
        options.side = MigrationSide::kConsumer;
        migrate(url_, options);
        db_ = database_->connect();
    }
    long long left(const std::string& endpoint = {}) {
        return db_->number("SELECT count(*) FROM outbox_webhook_deliveries" +
                           (endpoint.empty() ? "" : " WHERE endpoint_id = '" + endpoint + "'"));
    }
    std::string state(const std::string& endpoint) {
        return db_->value("SELECT state FROM outbox_webhook_endpoints WHERE endpoint_id = '" +
                          endpoint + "'");
    }
    long long missed(const std::string& endpoint) {
        return db_->number(
            "SELECT missed_total FROM outbox_webhook_endpoints WHERE endpoint_id = '" + endpoint +
            "'");
    }
    static Events keyed(int from, int to, int keys) {
        Events events;
        for (int i = from; i < to; ++i) {
            events.push_back(
                {.id = "e" + std::to_string(i), .key = "k" + std::to_string(i % keys)});
        }
        return events;
    }
    // First occurrences of what an endpoint took, by key, rise.
    static testing::AssertionResult in_order(const ScriptedReceivers& receivers,
                                             const std::string& endpoint) {
        std::map<std::string, int> last;
        std::set<std::string> seen;
        for (const auto& request : receivers.requests) {
            if (!request.taken || request.endpoint != endpoint || !request.key) continue;
            if (!seen.insert(request.event).second) continue;
            const int number = std::stoi(request.event.substr(1));
            const auto [at, fresh] = last.emplace(*request.key, number);
            if (!fresh && at->second > number) {
                return testing::AssertionFailure()
                       << request.event << " came behind e" << at->second << " of its key";
            }
            at->second = number;
        }
        return testing::AssertionSuccess();
    }

    std::unique_ptr<Database> database_;
    std::string url_;
    std::unique_ptr<Database::Connection> db_;
};

}  // namespace outbox::test
