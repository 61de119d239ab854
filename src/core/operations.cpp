#include "core/operations.h"

#include <algorithm>

namespace outbox {

ErrorInfo relay_is_running(const std::string& owner) {
    return {
        ErrorCode::kConflict,
        Advice::kStop,
        {},
        "relay " + owner +
            " (host:process) is running on this table; stop it and those that stand by first: "
            "kill -TERM its process, it hands over at once; then do this, and start them again"};
}

std::vector<LeaseInfo> leases_with_routes(std::vector<LeaseInfo> leases) {
    std::erase_if(leases, [](const LeaseInfo& one) { return !one.held && one.routes.empty(); });
    return leases;
}

LeaseInfo lease_of_tenant(const std::vector<LeaseInfo>& leases, const std::string& tenant) {
    const auto found = std::find_if(leases.begin(), leases.end(), [&](const LeaseInfo& one) {
        return one.tenants.empty() ||
               std::find(one.tenants.begin(), one.tenants.end(), tenant) != one.tenants.end();
    });
    return found == leases.end() ? LeaseInfo{} : *found;
}

ErrorInfo replay_is_running(const std::string& run, const std::string& runner) {
    return {ErrorCode::kConflict,
            Advice::kStop,
            {},
            runner + " (host:process) runs replay " + run +
                " of this route: wait for its end, or stop it: outbox replay cancel " + run +
                " --reason TEXT"};
}

std::string other_table_text(const std::string& follows) {
    return "the table is not the one that the ledgers of its routes were kept for (replaced, "
           "restored, or its numbers begun anew); " +
           follows +
           ". A relay that starts sends all that it holds, or says what has to be settled first";
}

ErrorInfo ledgers_of_another() {
    return {ErrorCode::kTableReset,
            Advice::kStop,
            {},
            other_table_text("nobody can say what of it was sent, and nothing was changed")};
}

bool is_not_known(const ErrorInfo& error) {
    return error.code == ErrorCode::kConflict || error.code == ErrorCode::kTableReset;
}

std::string left_over(const BoundedCount& unfinished) {
    if (unfinished.count == 0) return {};
    return ", which had not finished " + std::to_string(unfinished.count) +
           (unfinished.more         ? " events or more"
            : unfinished.count == 1 ? " event"
                                    : " events");
}

std::string ledgers_of(std::int64_t routes) {
    return "what " + std::to_string(routes) + (routes == 1 ? " route" : " routes") +
           " had finished";
}

ErrorInfo two_letters(const std::string& one, const std::string& other) {
    return {ErrorCode::kConflict,
            Advice::kStop,
            {},
            "routes '" + one + "' and '" + other +
                "' have dead letters of one event, which would become one: discard one of them, "
                "outbox dead discard ID --route NAME"};
}

namespace {

void add(std::string& text, const std::string& name, const std::string& value) {
    if (!value.empty()) text += (text.empty() ? "" : ", ") + name + " " + value;
}

std::string how_many(const std::vector<std::string>& ids) {
    return ids.empty() ? std::string() : std::to_string(ids.size());
}

}  // namespace

std::string describe(const DeadFilter& filter) {
    std::string text;
    add(text, "ids", how_many(filter.ids));
    add(text, "route", filter.route);
    add(text, "event type", filter.event_type);
    add(text, "key", filter.key);
    add(text, "error code", filter.error_code);
    add(text, "tenant", filter.tenant);
    return text.empty() ? "all" : text;
}

std::string describe(const ScheduledFilter& filter) {
    return describe(DeadFilter{.ids = filter.ids,
                               .event_type = filter.event_type,
                               .key = filter.key,
                               .tenant = filter.tenant});
}

TenantBacklogs most_of_each(const std::vector<std::map<std::string, std::int64_t>>& routes) {
    std::map<std::string, std::int64_t> most;
    TenantBacklogs backlogs;
    for (const auto& route : routes) {
        std::int64_t all = 0;
        for (const auto& [tenant, waiting] : route) {
            most[tenant] = std::max(most[tenant], waiting);
            all += waiting;
        }
        backlogs.more = backlogs.more || all >= BoundedCount::kLimit;
    }
    for (const auto& [tenant, waiting] : most) backlogs.tenants.push_back({tenant, waiting});
    std::stable_sort(backlogs.tenants.begin(), backlogs.tenants.end(),
                     [](const auto& a, const auto& b) { return a.waiting > b.waiting; });
    return backlogs;
}

std::string describe(const DeadEdit& edit) {
    std::string text;
    if (edit.payload) add(text, "payload", "(" + std::to_string(edit.payload->size()) + " bytes)");
    if (edit.topic) add(text, "topic", *edit.topic);
    if (edit.key) add(text, "key", *edit.key);
    if (edit.headers) add(text, "headers", *edit.headers);
    return text;
}

ErrorInfo no_delayed_events(const std::string& table) {
    return {ErrorCode::kUnsupported,
            Advice::kStop,
            {},
            "table " + table +
                " has no delayed events: outbox_scheduled stands beside the outbox_events of "
                "outbox migrate only"};
}

ErrorInfo no_paused_tenants() {
    return {ErrorCode::kNoSuchTable,
            Advice::kStop,
            {},
            "the table outbox_paused_tenants is missing: the tables were made by an earlier "
            "version. outbox migrate --db URL makes it"};
}

ErrorInfo never_relayed() {
    return {ErrorCode::kConflict,
            Advice::kStop,
            {},
            "no relay has served this table yet, so that nothing says which of its events are "
            "sent; start it first"};
}

std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        lines.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

}  // namespace outbox
