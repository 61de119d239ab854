// Read your writes across services: waits until a consumer has applied the events of a token.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "commands.h"
#include "consumer/operator_sql.h"
#include "core/fence.h"
#include "core/utf8.h"
#include "print.h"
#include "registry.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Between two looks; each is twice as long as the one before.
constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLongestPause{500};
constexpr milliseconds kLeastPatience{5'000};  // with one look
constexpr std::size_t kNameColumns = 40;

/// The consumer's database, to which it connects again when it was away.
class Place {
  public:
    Place(SourceConfig config, std::string consumer, std::string token, Clock::time_point deadline)
        : config_(std::move(config)),
          consumer_(std::move(consumer)),
          token_(std::move(token)),
          deadline_(deadline) {}

    Result<FenceLook> look() {
        if (Status status = open(); !status.ok()) return status;
        sql_->limit_waits(patience());
        auto look = sql_->look_for(consumer_, token_);
        if (!look.ok()) sql_.reset();
        return look;
    }
    /// Whether a consumer of this name has left anything in the database, as far as it can be seen.
    Result<bool> is_known() {
        if (Status status = open(); !status.ok()) return status;
        const auto rows = sql_->run(
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM outbox_inbox WHERE consumer = $1) OR "
            "EXISTS (SELECT 1 FROM outbox_inbox_stats WHERE consumer = $1) OR "
            "EXISTS (SELECT 1 FROM outbox_inbox_dead_letters WHERE consumer = $1)",
            {consumer_});
        if (!rows.ok()) return rows.status();
        return !rows->empty();
    }

  private:
    // What is left, so that nothing ends later where the database hangs.
    [[nodiscard]] milliseconds patience() const {
        return std::max(std::chrono::ceil<milliseconds>(deadline_ - Clock::now()), kLeastPatience);
    }
    Status open() {
        if (sql_) return {};
        auto sql = open_consumer_sql(config_.url, static_cast<int>(config_.connect_timeout.count()),
                                     {config_.owners});
        if (!sql.ok()) return sql.status();
        (*sql)->limit_waits(patience());
        const auto there = (*sql)->run((*sql)->table_count("outbox_inbox"), {});
        if (!there.ok()) return there.status();
        if (consumer::number((*there)[0][0]) == 0) {
            return {ErrorCode::kNoSuchTable, Advice::kStop,
                    "the database of --consumer-db has no consumer's tables: outbox migrate --db "
                    "URL --only consumer makes them"};
        }
        sql_ = std::move(*sql);
        return {};
    }

    const SourceConfig config_;
    const std::string consumer_;
    const std::string token_;
    const Clock::time_point deadline_;
    std::unique_ptr<consumer::Sql> sql_;
};

bool is_forgotten(const FenceLook& look) {
    return std::any_of(look.events.begin(), look.events.end(),
                       [](const FencedEvent& event) { return event.why == "forgotten"; });
}

// Nothing that is still to come changes it.
bool is_settled(const FenceLook& look) {
    return look.state == Fenced::kApplied || look.state == Fenced::kDead || is_forgotten(look);
}

// Somebody holds what is looked at; or the database, which was there, is away, and may be back.
bool may_pass(const ErrorInfo& error, bool has_looked) {
    const bool is_away =
        error.code == ErrorCode::kConnectionLost || error.code == ErrorCode::kConnectFailed;
    return error.code == ErrorCode::kConflict || (has_looked && is_away);
}

int exit_code_of_look(const FenceLook& look) {
    if (look.state == Fenced::kApplied) return runtime::kExitOk;
    if (look.state == Fenced::kDead) return runtime::kExitDead;
    return is_forgotten(look) ? runtime::kExitForgotten : runtime::kExitNotInTime;
}

// --- How it looks

std::string meaning_of(const std::string& why, const std::string& consumer) {
    if (why == "in_mailbox") {
        return "it waits in a mailbox here: is its consumer running, or behind another event of "
               "its key?";
    }
    if (why == "retry_requested") return "a dead letter that is tried once more";
    if (why == "dead_letter") {
        return "a dead letter: `outbox dead show --consumer " + consumer + "` says why";
    }
    if (why == "discarded") return "its dead letter was discarded: it never will be applied";
    if (why == "not_seen") {
        return "nothing here knows it: it is on its way, or waits where it was written (`outbox "
               "explain`), or its transaction was rolled back, or it does not go to this consumer";
    }
    if (why == "forgotten") {
        return "older than what this inbox remembers: it was applied and forgotten, or will be "
               "quarantined when it comes";
    }
    return "nothing here knows it: it is on its way, or older than what this inbox remembers; its "
           "id does not say when it was made";
}

Colour colour_of_fenced(Fenced state) {
    if (state == Fenced::kDead) return Colour::kRed;
    return state == Fenced::kApplied ? Colour::kGreen : Colour::kYellow;
}

std::string count_of_events(std::size_t count) {
    return std::to_string(count) + (count == 1 ? " event" : " events");
}

void print_look(const FenceLook& look, const std::string& consumer, const Result<bool>& known,
                double waited_s) {
    const std::string shown = shortened(consumer, kNameColumns);
    std::cout << coloured(colour_of_fenced(look.state), fenced_name(look.state)) << ": "
              << count_of_events(look.events.size()) << ", consumer " << shown << ", waited "
              << age_text(waited_s) << "\n";
    if (look.events.empty()) {
        std::cout << "  - the token names no event, so that there is nothing to wait for: was it "
                     "made of what the writer wrote?\n";
    }
    for (const FencedEvent& event : look.events) {
        if (event.why.empty()) continue;
        std::cout << "  " << event.id << "  " << fenced_name(event.state) << "\n    "
                  << wrapped(meaning_of(event.why, shown), 4) << "\n";
    }
    if (!known.ok()) {
        std::cout << "  - "
                  << wrapped("whether a consumer '" + shown +
                                 "' has ever recorded anything in this database could not be "
                                 "looked up: " +
                                 to_printable(known.error().message),
                             4)
                  << "\n";
        return;
    }
    if (*known) return;
    std::cout << "  - "
              << wrapped("no consumer '" + shown +
                             "' has ever recorded anything in this database; is the name right? "
                             "One that keeps no ids in outbox_inbox (mode kOffset, "
                             "accept_sequence, a table of its own) cannot be waited for",
                         4)
              << "\n";
}

void print_look_as_json(const FenceLook& look, const std::string& consumer,
                        const Result<bool>& known, double waited_s) {
    ordered_json events = ordered_json::array();
    for (const FencedEvent& event : look.events) {
        events.push_back({{"id", event.id},
                          {"state", fenced_name(event.state)},
                          {"why", text_or_null(event.why)}});
    }
    print_json({{"state", fenced_name(look.state)},
                {"timed_out", !is_settled(look)},
                {"consumer", consumer},
                {"consumer_known", known.ok() ? ordered_json(*known) : ordered_json(nullptr)},
                {"waited_s", waited_s},
                {"events", events}});
}

}  // namespace

int run_wait(const runtime::Invocation& invocation) {
    const runtime::OptionValues& options = invocation.options;
    const auto usage = [](const std::string& message) {
        return report(runtime::config_error("outbox wait", message));
    };
    if (invocation.positionals.size() != 1) return usage("give one fence token");
    const std::string consumer = options.text("consumer");
    if (consumer.empty()) return usage("which consumer? Give --consumer NAME");
    if (!is_utf8(consumer)) return usage("--consumer is not UTF-8, so that no consumer has it");
    const auto ids = parse_fence(invocation.positionals.front());
    if (!ids.ok()) return usage(ids.error().message);
    const auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return report(config.error());
    if (const std::string weakness = weakness_of_database(config->url);
        config->require_tls && !weakness.empty()) {
        return report(
            runtime::config_error(options.where("consumer-db"), "the database " + weakness));
    }

    const Clock::time_point began = Clock::now();
    const Clock::time_point deadline = began + options.duration("timeout");
    Place place(*config, consumer, invocation.positionals.front(), deadline);
    milliseconds pause = kFirstPause;
    bool has_looked = false;
    while (true) {
        auto look = place.look();
        if (!look.ok() && !may_pass(look.error(), has_looked)) return report(look.error());
        has_looked = true;
        const Clock::time_point now = Clock::now();
        if (look.ok() && (is_settled(*look) || now >= deadline)) {
            const auto known =
                look->state == Fenced::kApplied ? Result<bool>(true) : place.is_known();
            const double waited_s = std::chrono::duration<double>(now - began).count();
            (options.flag("json") ? print_look_as_json : print_look)(*look, consumer, known,
                                                                     waited_s);
            return exit_code_of_look(*look);
        }
        if (now >= deadline) return report(look.error());
        std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - now));
        pause = std::min(pause * 2, kLongestPause);
    }
}

}  // namespace outbox::app
