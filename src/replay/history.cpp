#include "replay/history.h"

#include <algorithm>
#include <cstddef>

#include "relay/tenants.h"

namespace outbox::replay {
namespace {

ErrorInfo shape_error(std::string message) {
    return {ErrorCode::kTableShape, Advice::kStop, {}, std::move(message)};
}

ErrorInfo conflict(std::string message) {
    return {ErrorCode::kConflict, Advice::kStop, {}, std::move(message)};
}

}  // namespace

ErrorInfo no_history(const std::string& table, bool native) {
    return shape_error(
        "there is no history: " + table + " gives up events once they are published" +
        (native ? ". With after_publish = keep they stay from then on (PostgreSQL 15 or newer): "
                  "outbox migrate --after-publish keep"
                : ". Tables with a column that says what is published keep them "
                  "(after_publish = mark), and outbox_events of outbox migrate with after_publish "
                  "= keep") +
        ". Dead letters can be replayed: --dead-letters");
}

ErrorInfo no_times(const std::string& table) {
    return shape_error("no column of " + table +
                       " tells when an event occurred, as --since and --until ask; map "
                       "occurred_at under [source.table.columns] in outbox.toml, or leave them "
                       "out");
}

ErrorInfo no_tenants(const std::string& table) {
    return shape_error("no column of " + table +
                       " tells whose an event is, as --tenant asks; map tenant_id under "
                       "[source.table.columns] in outbox.toml, or leave it out");
}

ErrorInfo no_relay(const std::string& table) {
    return conflict("no relay of " + table +
                    " has run here: nothing was published, and nothing "
                    "can be replayed");
}

ErrorInfo began_anew(const std::string& table) {
    return {ErrorCode::kTableReset,
            Advice::kStop,
            {},
            "table " + table +
                " is not the one that the run began with (replaced, restored, or its numbers begun "
                "anew): other events may have the places of those that were chosen, and nothing "
                "more of it is sent. outbox replay cancel RUN ends the run; what the table holds "
                "now is sent by a new one"};
}

ErrorInfo no_runs() {
    return {ErrorCode::kNoSuchTable,
            Advice::kStop,
            {},
            "the table outbox_replays is missing: the tables were made by an earlier version. "
            "outbox migrate --db URL makes it"};
}

Result<std::size_t> choose_source(const std::vector<std::string>& sources, const std::string& table,
                                  const Selection& selection) {
    if (sources.empty()) {
        return conflict("the table has no route '" + selection.route +
                        "'; outbox routes list shows those it has, and --route NAME takes the "
                        "events of one of them, wherever --to leads");
    }
    if (sources.size() == 1) return std::size_t{0};
    std::string names;
    std::vector<std::size_t> serving;
    for (std::size_t i = 0; i < sources.size(); ++i) {
        names += (names.empty() ? "" : ", ") + sources[i];
        const auto tenants = relay::tenants_of(sources[i], table);
        if (!selection.tenants.empty() && relay::covers(tenants, selection.tenants)) {
            serving.push_back(i);
        }
    }
    if (serving.size() == 1) return serving.front();
    return conflict("route '" + selection.route +
                    "' is of several relays, each for some tenants (" + names +
                    "): name tenants of one of them, --tenant ID");
}

std::string uuid7_digits(std::int64_t time_us) {
    constexpr std::int64_t kMicroseconds = 1'000;
    constexpr int kDigits = 12;
    std::int64_t left = std::max<std::int64_t>(0, (time_us + kMicroseconds - 1) / kMicroseconds);
    std::string digits(kDigits, '0');
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, left /= 16) {
        *digit = "0123456789abcdef"[left % 16];
    }
    return digits;
}

void widen(Estimate& estimate, std::int64_t first_us, std::int64_t last_us) {
    if (first_us == 0 && last_us == 0) return;
    const bool none = estimate.first_us == 0 && estimate.last_us == 0;
    estimate.first_us = none ? first_us : std::min(estimate.first_us, first_us);
    estimate.last_us = none ? last_us : std::max(estimate.last_us, last_us);
}

}  // namespace outbox::replay
