#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/backends.h"
#include "tests/consumer/database.h"
#include "tests/support/hand_clock.h"
#include "tests/webhook/meddled_inlet.h"
#include "tests/webhook/meddled_outlet.h"
#include "webhook/dispatcher.h"
#include "webhook/fan_out.h"
#include "webhook/registry.h"

namespace outbox::test {

// Receivers whose answers a test makes up; what has no answer hangs.
class ScriptedReceivers final : public webhook::Sender {
  public:
    struct Answer {
        webhook::Verdict::Kind kind = webhook::Verdict::Kind::kDone;
        int status = 200;
        std::optional<std::chrono::seconds> wait = {};
    };
    static Answer done() { return {}; }
    static Answer refused(int status = 500) {
        return {webhook::Verdict::Kind::kRefused, status, {}};
    }
    static Answer down() { return {webhook::Verdict::Kind::kDown, 0, {}}; }
    static Answer own_fault() { return {webhook::Verdict::Kind::kOwnFault, 0, {}}; }
    static Answer gone() { return {webhook::Verdict::Kind::kGone, 410, {}}; }
    static Answer busy(std::chrono::seconds wait) {
        return {webhook::Verdict::Kind::kBusy, 503, wait};
    }

    std::function<std::optional<Answer>(const webhook::Endpoint&, const webhook::Delivery&)>
        answer = [](const auto&, const auto&) { return std::optional(done()); };

    struct Request {
        std::string endpoint;
        std::string event;
        std::optional<std::string> key;
        bool taken = false;
    };
    std::string text = "as scripted";  // what is said of an attempt that fails
    std::vector<Request> requests;
    std::map<std::uint64_t, std::string> hanging;  // by token, the endpoint
    std::map<std::string, std::size_t> under_way;  // by endpoint
    std::map<std::string, std::size_t> most_under_way;
    std::size_t most = 0;  // at once, of all

    // The events that an endpoint took, in their order, repeats included.
    std::vector<std::string> taken(const std::string& endpoint) const {
        std::vector<std::string> out;
        for (const Request& request : requests) {
            if (request.taken && request.endpoint == endpoint) out.push_back(request.event);
        }
        return out;
    }
    std::size_t attempts(const std::string& endpoint, const std::string& event = {}) const {
        std::size_t count = 0;
        for (const Request& request : requests) {
            if (request.endpoint == endpoint && (event.empty() || request.event == event)) ++count;
        }
        return count;
    }

    void start(std::uint64_t token, const webhook::Endpoint& endpoint,
               const webhook::Delivery& delivery) override {
        const auto said = answer(endpoint, delivery);
        const bool taken = said && said->kind == webhook::Verdict::Kind::kDone;
        requests.push_back({endpoint.id, delivery.event_id, delivery.key, taken});
        most_under_way[endpoint.id] =
            std::max(most_under_way[endpoint.id], ++under_way[endpoint.id]);
        if (!said) {
            hanging.emplace(token, endpoint.id);
        } else {
            answered_.emplace(token, std::pair(endpoint.id, *said));
        }
        most = std::max(most, hanging.size() + answered_.size());
    }
    void poll(std::chrono::milliseconds /*max_wait*/, int /*wake_fd*/,
              std::vector<webhook::Attempted>& out) override {
        for (const auto& [token, said] : answered_) {
            --under_way[said.first];
            const bool ok = said.second.kind == webhook::Verdict::Kind::kDone;
            out.push_back(
                {token, said.second.status, {said.second.kind, said.second.wait, ok ? "" : text}});
        }
        answered_.clear();
    }
    void cancel(std::uint64_t token) override {
        cancelled.insert(token);
        if (hanging.contains(token)) --under_way[hanging[token]];
        hanging.erase(token);
        answered_.erase(token);
    }
    // What hangs ends as the receiver's time limit would end it, or as it is said.
    void end_hanging() { end_hanging(down()); }
    void end_hanging(const Answer& with) {
        for (const auto& [token, endpoint] : hanging) {
            answered_.emplace(token, std::pair(endpoint, with));
        }
        hanging.clear();
    }
    // The same of one.
    void end_hanging(std::uint64_t token, const Answer& with) {
        answered_.emplace(token, std::pair(hanging.at(token), with));
        hanging.erase(token);
    }
    std::set<std::uint64_t> cancelled;

  private:
    std::map<std::uint64_t, std::pair<std::string, Answer>> answered_;
};

// On a machine that is busy with other tests.
constexpr int kPatienceS = 60;

inline std::unique_ptr<webhook::Inlet> open_inlet(const std::string& url) {
    const auto* database = find_database(url).value_or_throw();
    return database
        ->open_webhook_inlet({.target = url, .owners = {}, .connect_timeout_s = kPatienceS})
        .value_or_throw();
}

inline std::unique_ptr<webhook::Outlet> open_outlet(const std::string& url,
                                                    int patience_s = kPatienceS) {
    const auto* database = find_database(url).value_or_throw();
    return database
        ->open_webhook_outlet({.target = url, .owners = {}, .connect_timeout_s = patience_s})
        .value_or_throw();
}

inline std::unique_ptr<webhook::Registry> open_registry(const std::string& url) {
    const auto* database = find_database(url).value_or_throw();
    return webhook::Registry::make(
        database->open_sql(url, std::chrono::seconds(kPatienceS), {}).value_or_throw(), "tester");
}

// One relay's part: it writes deliveries and delivers them.
class Rig {
  public:
    explicit Rig(std::string url, webhook::DispatchOptions options = {},
                 int patience_s = kPatienceS)
        : url_(std::move(url)),
          outlet_(std::make_unique<MeddledOutlet>(open_outlet(url_, patience_s))),
          dispatcher_(std::make_unique<webhook::Dispatcher>(
              webhook::Dispatcher::Deps{*outlet_, receivers, queues, clock},
              named(std::move(options)))),
          inlet_(new MeddledInlet(open_inlet(url_))),
          fan_out_(std::unique_ptr<webhook::Inlet>(inlet_), queues, clock) {}

    void prepare() { ASSERT_EQ(text(fan_out_.prepare()), ""); }

    struct Written {
        std::string id;
        std::string type = "order.paid";
        std::string key = {};
        std::string tenant = {};
        std::string payload = "{}";
    };
    std::string write(const std::vector<Written>& events) {
        std::vector<mailbox::Row> rows;
        for (const Written& event : events) {
            rows.push_back({.id = event.id,
                            .topic = "t",
                            .key = event.key,
                            .headers = R"({"a":"b"})",
                            .payload = event.payload,
                            .event_type = event.type,
                            .tenant = event.tenant,
                            .occurred_at_us = clock.wall_us()});
        }
        const auto ready = fan_out_.ready();
        if (!ready.ok()) return text(ready.status());
        if (!*ready) return "it waits";
        Status status = fan_out_.insert(rows);
        if (records && status.ok()) fan_out_.all_recorded();
        return text(status);
    }

    // Turns, with time going on a little, until it holds.
    testing::AssertionResult turn_until(const std::string& what, const std::function<bool()>& holds,
                                        std::int64_t step_ms = 10) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(240);
        while (!holds()) {
            if (std::chrono::steady_clock::now() > deadline) {
                return testing::AssertionFailure() << "in vain: " << what << "\n" << remarks();
            }
            turn(step_ms);
        }
        return testing::AssertionSuccess();
    }
    void turn(std::int64_t step_ms = 10) {
        clock.advance_ms(step_ms);
        dispatcher_->turn(std::chrono::milliseconds(0));
        for (webhook::Remark& remark : dispatcher_->take_remarks()) {
            said_.push_back(std::move(remark));
        }
        for (webhook::Remark& remark : fan_out_.take_remarks()) said_.push_back(std::move(remark));
    }
    void turns(int count, std::int64_t step_ms = 10) {
        for (int i = 0; i < count; ++i) turn(step_ms);
    }
    bool said(const std::string& what) const {
        return std::any_of(said_.begin(), said_.end(),
                           [&](const webhook::Remark& one) { return one.what == what; });
    }
    std::size_t times_said(const std::string& what) const {
        return static_cast<std::size_t>(std::count_if(
            said_.begin(), said_.end(), [&](const auto& one) { return one.what == what; }));
    }
    // The numbers in this field of these lines, added.
    std::int64_t sum_said(const std::string& what, const std::string& field) const {
        std::int64_t sum = 0;
        for (const webhook::Remark& one : said_) {
            for (const auto& [name, value] : one.fields) {
                if (one.what == what && name == field) sum += std::stoll(value);
            }
        }
        return sum;
    }
    std::string remarks() const {
        std::string out;
        for (const webhook::Remark& one : said_) {
            out += one.what;
            for (const auto& [name, value] : one.fields) out += " " + name + "=" + value;
            out += '\n';
        }
        return out;
    }
    void finish() { dispatcher_->finish(); }
    // As the kernel ends it: nothing more is said to anybody.
    void kill() {
        dispatcher_.reset();
        outlet_.reset();
    }
    webhook::DispatcherStats stats() const { return dispatcher_->stats(); }
    webhook::FanOut& fan_out() { return fan_out_; }
    MeddledOutlet& outlet() { return *outlet_; }
    MeddledInlet& inlet() { return *inlet_; }
    // As if the endpoint's queue were so long.
    void fill(const std::string& endpoint, std::int64_t rows) {
        inlet_->lengths[endpoint] = rows;
        queues.count({{endpoint, rows, 0}});
    }

    bool records = true;  // what is written, at once
    HandClock clock;
    ScriptedReceivers receivers;
    webhook::Queues queues;

    static std::string text(const Status& status) {
        return status.ok() ? "" : describe(status.error());
    }

  private:
    static webhook::DispatchOptions named(webhook::DispatchOptions options) {
        static int number = 0;
        options.owner = "rig-" + std::to_string(++number);
        return options;
    }

    std::string url_;
    std::unique_ptr<MeddledOutlet> outlet_;
    std::unique_ptr<webhook::Dispatcher> dispatcher_;
    MeddledInlet* inlet_;  // fan_out_'s
    webhook::FanOut fan_out_;
    std::vector<webhook::Remark> said_;
};

inline std::string add_endpoint(const std::string& url, const std::string& id,
                                const std::string& events = "*", const std::string& tenant = {}) {
    webhook::Endpoint endpoint;
    endpoint.id = id;
    endpoint.url = "https://" + id + ".example.com/";
    endpoint.events = events;
    if (!tenant.empty()) endpoint.tenant = tenant;
    endpoint.secrets = "sealed";
    return Rig::text(open_registry(url)->add(endpoint));
}

}  // namespace outbox::test
