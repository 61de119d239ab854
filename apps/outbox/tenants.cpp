// Tenants that are stopped, and go on.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "commands.h"
#include "core/utf8.h"
#include "print.h"
#include "registry.h"
#include "replays.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// A look reads the table: it rests for this many times as long as it took.
constexpr int kRests = 4;
constexpr std::chrono::milliseconds kShortestRest{200};
constexpr std::chrono::seconds kProgressEvery{1};
constexpr std::size_t kShownReason = 40;
// The key of outbox_paused_tenants, with the table's name, is a row of an index: 2,704 bytes at
// most.
constexpr std::size_t kMaxPausedBytes = 2'000;

std::string events_text(const BoundedCount& count) {
    return with_commas(count.count) + (count.more ? "+" : "") +
           (count.count == 1 && !count.more ? " event" : " events");
}

// "20 events", "20 events and 1 that is delayed until 2027-03-01T00:00:00Z".
std::string events_text(const BoundedCount& count, const DelayedEvents& delayed) {
    if (delayed.count == 0) return events_text(count);
    return events_text(count) + " and " + with_commas(delayed.count) +
           (delayed.count == 1 ? " that is delayed until " : " that are delayed, the last until ") +
           time_text(delayed.last_due_us).substr(0, 19) + "Z";
}

struct Opened {
    std::unique_ptr<Operations> operations;
    std::string tenant;
};

Result<std::unique_ptr<Operations>> open_for(const runtime::Invocation& invocation,
                                             const std::string& reason) {
    const auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return config.error();
    auto outbox = open_outbox(*config);
    if (!outbox.ok()) return outbox.error();
    outbox->operations->act_for(os_user(), reason);
    return std::move(outbox->operations);
}

// The tenant that a command changes, and what it is changed by.
Result<Opened> open_tenant(const runtime::Invocation& invocation) {
    if (invocation.positionals.size() != 1 || invocation.positionals.front().empty()) {
        return runtime::config_error(command_of(invocation), "which tenant? Give one name");
    }
    const std::string& tenant = invocation.positionals.front();
    if (!is_utf8(tenant)) {
        return runtime::config_error(command_of(invocation),
                                     "the name is not UTF-8, so that no tenant has it");
    }
    auto reason = reason_of(invocation);
    if (!reason.ok()) return reason.error();
    auto operations = open_for(invocation, *reason);
    if (!operations.ok()) return operations.error();
    return Opened{std::move(*operations), tenant};
}

Status check_length(const runtime::Invocation& invocation, const std::string& tenant) {
    if (tenant.size() <= kMaxPausedBytes) return {};
    return runtime::config_error(
        command_of(invocation), "the name has " +
                                    with_commas(static_cast<std::int64_t>(tenant.size())) +
                                    " bytes, and a tenant that is paused " +
                                    with_commas(kMaxPausedBytes) + " at most; nothing was changed");
}

// What of a tenant is to be sent.
struct Left {
    DelayedEvents delayed = {};
    BoundedCount unfinished = {};

    [[nodiscard]] bool none() const { return delayed.count == 0 && unfinished.count == 0; }
    [[nodiscard]] std::string text() const { return events_text(unfinished, delayed); }
};

Result<Left> left_of(Operations& operations, const std::string& tenant) {
    const auto delayed = operations.delayed_of_tenant(tenant);
    if (!delayed.ok()) return delayed.error();
    const auto unfinished = operations.unfinished_of_tenant(tenant);
    if (!unfinished.ok()) return unfinished.error();
    return Left{*delayed, *unfinished};
}

// Events that name no tenant are some relay's default tenant's. Where this command was not told
// which that is, they may be those of the one that is drained.
Result<Left> may_be_its(const runtime::Invocation& invocation, Operations& operations) {
    if (invocation.options.given("default-tenant")) return Left{};
    return left_of(operations, "");
}

ErrorInfo is_paused_already(const PausedTenant& paused) {
    return {ErrorCode::kConflict,
            Advice::kStop,
            {},
            "tenant " + paused.tenant_id + " is paused since " + time_text(paused.since_us) +
                " by " + paused.who + ": " + paused.reason + "; nothing was changed"};
}

// None: it is not paused.
Result<std::optional<PausedTenant>> find_paused(Operations& operations, const std::string& tenant) {
    const auto all = operations.paused_tenants();
    if (!all.ok()) return all.error();
    for (const PausedTenant& one : *all) {
        if (one.tenant_id == tenant) return std::optional<PausedTenant>(one);
    }
    return std::optional<PausedTenant>();
}

// Dead letters that are retried wait for their tenant, too.
std::string retried_text(Operations& operations, const std::string& tenant) {
    DeadFilter letters;
    letters.tenant = tenant;
    const auto all = operations.count_dead(letters);
    const auto idle = operations.count_dead(letters.of_idle());
    if (!all.ok() || !idle.ok() || *all <= *idle) return {};
    return " and " + with_commas(*all - *idle) + " retried dead letter" +
           (*all - *idle == 1 ? "" : "s");
}

// Says that it is done, with what of the tenant is left.
int tell(const runtime::Invocation& invocation, const Opened& opened, const std::string& state) {
    const auto left = left_of(*opened.operations, opened.tenant);
    if (!left.ok() && !is_not_known(left.error())) return report(left.error());
    if (invocation.options.flag("json")) {
        ordered_json json{{"tenant", opened.tenant}, {"state", state}};
        json["waiting"] = left.ok() ? ordered_json(left->unfinished.count) : ordered_json(nullptr);
        json["more"] = left.ok() && left->unfinished.more;
        json["delayed"] = left.ok() ? ordered_json(left->delayed.count) : ordered_json(nullptr);
        json["delayed_until"] =
            left.ok() ? time_or_null(left->delayed.last_due_us) : ordered_json(nullptr);
        print_json(json);
        return runtime::kExitOk;
    }
    std::cout << "tenant " << to_printable(opened.tenant) << " is " << state
              << (left.ok()
                      ? "; " + left->text() + retried_text(*opened.operations, opened.tenant) +
                            (state == "paused" ? " kept" : " to be sent")
                      : std::string())
              << "\n";
    return runtime::kExitOk;
}

}  // namespace

int run_tenant_list(const runtime::Invocation& invocation) {
    if (!invocation.positionals.empty()) {
        return report(runtime::config_error(command_of(invocation), "takes no names"));
    }
    const auto operations = open_for(invocation, {});
    if (!operations.ok()) return report(operations.error());
    const auto tenants = (*operations)->paused_tenants();
    if (!tenants.ok()) return report(tenants.error());
    using Align = TextColumns::Align;
    TextColumns columns({{"TENANT", Align::kLeft},
                         {"STATE", Align::kLeft},
                         {"KEPT", Align::kRight},
                         {"SINCE", Align::kLeft},
                         {"BY", Align::kLeft},
                         {"REASON", Align::kLeft}});
    ordered_json list = ordered_json::array();
    for (const PausedTenant& one : *tenants) {
        const auto kept = (*operations)->unfinished_of_tenant(one.tenant_id);
        if (!kept.ok() && !is_not_known(kept.error())) return report(kept.error());
        columns.add({one.tenant_id, "paused",
                     kept.ok() ? with_commas(kept->count) + (kept->more ? "+" : "") : "-",
                     time_text(one.since_us).substr(0, 19) + "Z", one.who,
                     shortened(one.reason, kShownReason)});
        list.push_back({{"tenant", one.tenant_id},
                        {"state", "paused"},
                        {"waiting", kept.ok() ? ordered_json(kept->count) : ordered_json()},
                        {"more", kept.ok() && kept->more},
                        {"since", time_text(one.since_us)},
                        {"who", one.who},
                        {"reason", one.reason}});
    }
    if (invocation.options.flag("json")) {
        print_json(list);
    } else if (tenants->empty()) {
        std::cout << "no tenant is paused\n";
    } else {
        columns.print(std::cout);
    }
    return runtime::kExitOk;
}

int run_tenant_pause(const runtime::Invocation& invocation) {
    const auto opened = open_tenant(invocation);
    if (!opened.ok()) return report(opened.error());
    if (Status fits = check_length(invocation, opened->tenant); !fits.ok()) {
        return report(fits.error());
    }
    const auto changed = opened->operations->pause_tenant(opened->tenant);
    if (!changed.ok()) return report(changed.error());
    if (!*changed) {
        const auto paused = find_paused(*opened->operations, opened->tenant);
        if (!paused.ok()) return report(paused.error());
        return report(is_paused_already(paused->value_or(PausedTenant{opened->tenant, {}, {}, 0})));
    }
    return tell(invocation, *opened, "paused");
}

int run_tenant_resume(const runtime::Invocation& invocation) {
    const auto opened = open_tenant(invocation);
    if (!opened.ok()) return report(opened.error());
    const auto changed = opened->operations->resume_tenant(opened->tenant);
    if (!changed.ok()) return report(changed.error());
    if (!*changed) {
        return report({ErrorCode::kConflict,
                       Advice::kStop,
                       {},
                       "tenant " + opened->tenant +
                           " is not paused; `outbox tenant list` shows those that are"});
    }
    return tell(invocation, *opened, "resumed");
}

// Waits with the tenant as it is, so that whoever is stopped here has changed nothing.
int run_tenant_drain(const runtime::Invocation& invocation) {
    const auto opened = open_tenant(invocation);
    if (!opened.ok()) return report(opened.error());
    Operations& operations = *opened->operations;
    if (Status fits = check_length(invocation, opened->tenant); !fits.ok()) {
        return report(fits.error());
    }
    const auto paused = find_paused(operations, opened->tenant);
    if (!paused.ok()) return report(paused.error());
    if (*paused) return report(is_paused_already(**paused));
    const Clock::time_point deadline = Clock::now() + invocation.options.duration("within");
    Clock::time_point told_at{};
    while (true) {
        const Clock::time_point began = Clock::now();
        const auto left = left_of(operations, opened->tenant);
        if (!left.ok()) return report(left.error());
        Left nameless;
        if (left->none()) {
            const auto may_be = may_be_its(invocation, operations);
            if (!may_be.ok()) return report(may_be.error());
            nameless = *may_be;
        }
        if (left->none() && nameless.none()) break;
        const std::string whose =
            "that name no tenant are its where the relays have --default-tenant " +
            to_printable(opened->tenant) + "; give --default-tenant NAME as they have it";
        const Clock::time_point now = Clock::now();
        if (now >= deadline) {
            const bool delayed = left->delayed.count + nameless.delayed.count > 0;
            std::cerr << "outbox: not in time: "
                      << (left->none() ? nameless.text() + " " + whose
                                       : left->text() + " of tenant " +
                                             to_printable(opened->tenant) + " wait")
                      << "; it is not paused, and nothing was changed"
                      << (delayed ? ". Delayed events are rows of outbox_scheduled: give --within "
                                    "the time, or pause the tenant and move these rows, too"
                                  : "")
                      << "\n";
            return runtime::kExitNotInTime;
        }
        if (now - told_at >= kProgressEvery) {
            std::cerr << (left->none() ? nameless.text() + " " + whose : left->text() + " left")
                      << "\n";
            told_at = now;
        }
        const Clock::duration rest =
            std::max<Clock::duration>(kShortestRest, (now - began) * kRests);
        std::this_thread::sleep_for(std::min<Clock::duration>(rest, deadline - now));
    }
    const auto changed = operations.pause_tenant(opened->tenant);
    if (!changed.ok()) return report(changed.error());
    return tell(invocation, *opened, "paused");
}

}  // namespace outbox::app
