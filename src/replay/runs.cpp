#include "replay/runs.h"

#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "codec/time_text.h"

namespace outbox::replay {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxErrorBytes = 500;  // of a refusal that is listed

std::int64_t number(const std::string& cell) {
    std::int64_t value = 0;
    std::from_chars(cell.data(), cell.data() + cell.size(), value);
    return value;
}

bool truth(const std::string& cell) {
    return cell == "t" || cell == "1";
}

std::string time_text(std::int64_t epoch_us) {
    spi::EventBatch arena;
    codec::TimeText times;
    return std::string(times.of(epoch_us, arena));
}

std::string dump(const ordered_json& json) {
    return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// What is chosen, and what becomes of it.
std::string selection_json(const Run& run) {
    const Selection& selection = run.selection;
    ordered_json json = ordered_json::object();
    if (selection.dead) json["dead"] = true;
    if (selection.since_us != 0) json["since_us"] = selection.since_us;
    if (selection.until_us != 0) json["until_us"] = selection.until_us;
    if (!selection.key.empty()) json["key"] = selection.key;
    if (!selection.event_type.empty()) json["event_type"] = selection.event_type;
    if (!selection.tenants.empty()) json["tenants"] = selection.tenants;
    json["topic_template"] = run.topic_template;
    json["format"] = run.format;
    return dump(json);
}

void read_selection(const std::string& route, const std::string& text, Run& run) {
    Selection& selection = run.selection;
    selection.route = route;
    const auto json = ordered_json::parse(text, nullptr, false);
    if (!json.is_object()) return;
    selection.dead = json.value("dead", false);
    selection.since_us = json.value("since_us", std::int64_t{0});
    selection.until_us = json.value("until_us", std::int64_t{0});
    selection.key = json.value("key", std::string());
    selection.event_type = json.value("event_type", std::string());
    selection.tenants = json.value("tenants", std::vector<std::string>());
    run.topic_template = json.value("topic_template", std::string());
    run.format = json.value("format", std::string());
}

std::string to_json(const std::vector<Refusal>& refusals) {
    ordered_json list = ordered_json::array();
    for (const Refusal& one : refusals) {
        if (list.size() == kMaxRefusals) break;
        list.push_back(
            {{"id", one.id}, {"key", one.key}, {"error", one.error.substr(0, kMaxErrorBytes)}});
    }
    return dump(list);
}

std::vector<Refusal> refusals_of(const std::string& text) {
    std::vector<Refusal> refusals;
    const auto json = ordered_json::parse(text, nullptr, false);
    if (!json.is_array()) return refusals;
    for (const auto& one : json) {
        if (!one.is_object()) continue;
        refusals.push_back({one.value("id", std::string()), one.value("key", std::string()),
                            one.value("error", std::string())});
    }
    return refusals;
}

// The columns of `Runs::columns`.
Run run_of(const RunTable::Row& row) {
    Run run;
    run.id = row[0];
    run.source = row[1];
    read_selection(row[2], row[3], run);
    run.destination = row[4];
    run.met = row[5];
    run.rate = number(row[6]);
    run.as_new = truth(row[7]);
    run.reason = row[8];
    run.who = (row[10].empty() ? "" : "role " + row[10] + ", ") + "user " + row[9];
    run.state = row[11];
    run.expected = number(row[12]);
    run.sent = number(row[13]);
    run.refused = number(row[14]);
    run.refusals = refusals_of(row[15]);
    run.place = row[16];
    run.end = row[17];
    run.error = row[18];
    run.runner = row[19];
    run.epoch = static_cast<std::uint64_t>(number(row[20]));
    run.lease_ms = number(row[21]);
    run.rate_per_s = std::strtod(row[22].c_str(), nullptr);
    run.started_us = number(row[23]);
    run.updated_us = number(row[24]);
    run.ended_us = number(row[25]);
    return run;
}

// "run 0193..., 1,200 published events of route orders"
std::string detail_of(const Run& run) {
    return "run " + run.id + ": " + describe(run.selection) +
           (run.destination.empty() ? "" : ", to " + run.destination) + ", " +
           std::to_string(run.rate) + "/s" + (run.as_new ? ", as new events" : "");
}

ErrorInfo lease_lost(std::string message) {
    return {ErrorCode::kLeaseLost, Advice::kStop, {}, std::move(message)};
}

std::string with_reason(const std::string& detail, const std::string& reason) {
    return detail + "; reason: " + reason;
}

}  // namespace

std::string describe(const Selection& selection) {
    std::string text = (selection.dead ? "dead letters of route " : "published events of route ") +
                       selection.route;
    if (selection.since_us != 0) text += ", since " + time_text(selection.since_us);
    if (selection.until_us != 0) text += ", until " + time_text(selection.until_us);
    if (!selection.key.empty()) text += ", key " + selection.key;
    if (!selection.event_type.empty()) text += ", event type " + selection.event_type;
    for (const std::string& tenant : selection.tenants) text += ", tenant " + tenant;
    return text;
}

ErrorInfo run_is_gone(const Run& run) {
    return lease_lost(
        "run " + run.id +
        " is not in outbox_replays any more: the row was deleted, or the database failed over or "
        "was restored to a state from before it. It had sent " +
        std::to_string(run.sent) + " of " + std::to_string(run.expected) +
        " and cannot be gone on with; a new run sends these again, too, where --since does not "
        "leave them out");
}

std::string Runs::columns() const {
    // How long the runner may be taken for alive goes by the database's clock.
    return "run, source, route, selection, destination, met, rate, as_new, reason, os_user, role, "
           "state, expected, sent, refused, refusals, place, place_end, error, runner, epoch, "
           "CASE WHEN runner_until > " +
           table_.in_ms("0") + " THEN (" + table_.us("runner_until") + " - " +
           table_.us(table_.in_ms("0")) + ") / 1000 ELSE 0 END, rate_per_s, " +
           table_.us("started_at") + ", " + table_.us("updated_at") + ", " + table_.us("ended_at");
}

Status Runs::in_transaction(const std::function<Status()>& change) {
    Status status = table_.run("BEGIN", {}).status();
    if (!status.ok()) return status;
    status = change();
    const Status ended = table_.run(status.ok() ? "COMMIT" : "ROLLBACK", {}).status();
    return status.ok() ? ended : status;
}

Status Runs::audit(const std::string& action, const std::string& detail, std::int64_t events) {
    return table_
        .run(table_.audit("os_user, source, action, detail, events",
                          "$1, $2, $3, $4, CAST($5 AS bigint)"),
             {os_user_, source_, action, detail, std::to_string(events)})
        .status();
}

Status Runs::begin(const Run& run) {
    return in_transaction([&] {
        Status status =
            table_
                .run("INSERT INTO " + table_.named("outbox_replays") +
                         " (run, source, route, selection, destination, met, rate, as_new, reason, "
                         "os_user, expected, place_end, started_at, updated_at) VALUES ($1, $2, "
                         "$3, $4, $5, $6, CAST($7 AS bigint), CAST($8 AS integer) = 1, $9, $10, "
                         "CAST($11 AS bigint), $12, " +
                         table_.in_ms("0") + ", " + table_.in_ms("0") + ")",
                     {run.id, source_, run.selection.route, selection_json(run), run.destination,
                      run.met, std::to_string(run.rate), run.as_new ? "1" : "0", run.reason,
                      os_user_, std::to_string(run.expected), run.end})
                .status();
        if (!status.ok()) return status;
        return audit("replay", with_reason(detail_of(run), run.reason), run.expected);
    });
}

Result<std::optional<Run>> Runs::find(const std::string& id) {
    const auto there = table_.has_table();
    if (!there.ok()) return there.error();
    if (!*there) return std::optional<Run>();
    const auto rows = table_.run("SELECT " + columns() + " FROM " + table_.named("outbox_replays") +
                                     " WHERE run = $1 AND source = $2",
                                 {id, source_});
    if (!rows.ok()) return rows.error();
    if (rows->empty()) return std::optional<Run>();
    return std::optional<Run>(run_of(rows->front()));
}

Result<std::vector<Run>> Runs::list(std::size_t limit) {
    const auto there = table_.has_table();
    if (!there.ok()) return there.error();
    if (!*there) return std::vector<Run>();
    const auto rows = table_.run("SELECT " + columns() + " FROM " + table_.named("outbox_replays") +
                                     " WHERE source = $1 ORDER BY CASE WHEN state IN ('running', "
                                     "'failed') THEN 0 ELSE 1 END, started_at DESC LIMIT " +
                                     std::to_string(limit),
                                 {source_});
    if (!rows.ok()) return rows.error();
    std::vector<Run> runs;
    for (const RunTable::Row& row : *rows) runs.push_back(run_of(row));
    return runs;
}

Result<std::optional<std::uint64_t>> Runs::take(const Run& run, const std::string& runner,
                                                std::int64_t lease_ms, const std::string& reason) {
    std::optional<std::uint64_t> epoch;
    const Status status = in_transaction([&]() -> Status {
        const auto rows = table_.run(
            "UPDATE " + table_.named("outbox_replays") +
                " SET state = 'running', error = '', runner = $1, epoch = epoch + 1, runner_until "
                "= " +
                table_.in_ms("CAST($2 AS bigint)") + ", updated_at = " + table_.in_ms("0") +
                " WHERE run = $3 AND route = $4 AND state IN ('running', 'failed') AND "
                "(runner_until IS NULL OR runner_until <= " +
                table_.in_ms("0") + " OR runner_until > " + table_.in_ms("CAST($2 AS bigint)") +
                ") RETURNING epoch",
            {runner, std::to_string(lease_ms), run.id, run.selection.route});
        if (!rows.ok() || rows->empty()) return rows.status();
        epoch = static_cast<std::uint64_t>(number((*rows)[0][0]));
        if (reason.empty()) return {};
        return audit("replay resume", with_reason(detail_of(run), reason),
                     run.expected - run.sent - run.refused);
    });
    if (!status.ok()) return status.error();
    return epoch;
}

Result<std::string> Runs::record(const Run& run, std::uint64_t epoch, const Progress& progress,
                                 std::int64_t lease_ms) {
    const auto rows = table_.run(
        "UPDATE " + table_.named("outbox_replays") +
            " SET sent = CAST($1 AS bigint), refused = CAST($2 AS bigint), refusals = $3, place = "
            "$4, rate_per_s = CAST($5 AS double precision), runner_until = " +
            table_.in_ms("CAST($6 AS bigint)") + ", updated_at = " + table_.in_ms("0") +
            " WHERE run = $7 AND epoch = CAST($8 AS bigint) RETURNING state",
        {std::to_string(progress.sent), std::to_string(progress.refused),
         to_json(progress.refusals), progress.place, std::to_string(progress.rate_per_s),
         std::to_string(lease_ms), run.id, std::to_string(epoch)});
    if (!rows.ok()) return rows.error();
    if (!rows->empty()) return (*rows)[0][0];
    return why_not_recorded(run, epoch, lease_ms);
}

// Epochs rise with each runner: only a database that was set back has the row without this one's.
ErrorInfo Runs::why_not_recorded(const Run& run, std::uint64_t epoch, std::int64_t lease_ms) {
    const auto rows = table_.run(
        "SELECT epoch FROM " + table_.named("outbox_replays") + " WHERE run = $1", {run.id});
    if (!rows.ok()) return rows.error();
    if (rows->empty()) return run_is_gone(run);
    if (static_cast<std::uint64_t>(number((*rows)[0][0])) < epoch) {
        return lease_lost(
            "the database failed over or was restored to a state from before this process took "
            "run " +
            run.id + "; `outbox replay resume` goes on with it");
    }
    return lease_lost("another process goes on with run " + run.id +
                      ", as this one did not answer for " + std::to_string(lease_ms / 1000) + " s");
}

Status Runs::leave(const Run& run, std::uint64_t epoch, const std::string& state,
                   const std::string& error) {
    const std::string ended = state.empty() || state == "failed" ? "ended_at" : table_.in_ms("0");
    return table_
        .run("UPDATE " + table_.named("outbox_replays") +
                 " SET state = CASE WHEN $1 = '' OR state = 'cancelled' THEN state ELSE $1 END, "
                 "error = $2, runner = '', runner_until = NULL, rate_per_s = 0, updated_at = " +
                 table_.in_ms("0") + ", ended_at = coalesce(ended_at, " + ended +
                 ") WHERE run = $3 AND epoch = CAST($4 AS bigint)",
             {state, error, run.id, std::to_string(epoch)})
        .status();
}

Result<bool> Runs::cancel(const Run& run, const std::string& reason) {
    bool cancelled = false;
    const Status status = in_transaction([&]() -> Status {
        const auto rows =
            table_.run("UPDATE " + table_.named("outbox_replays") +
                           " SET state = 'cancelled', ended_at = " + table_.in_ms("0") +
                           ", updated_at = " + table_.in_ms("0") +
                           " WHERE run = $1 AND state IN ('running', 'failed') RETURNING run",
                       {run.id});
        if (!rows.ok() || rows->empty()) return rows.status();
        cancelled = true;
        return audit("replay cancel", with_reason(detail_of(run), reason), run.sent + run.refused);
    });
    if (!status.ok()) return status.error();
    return cancelled;
}

}  // namespace outbox::replay
