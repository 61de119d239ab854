#include "core/explanation.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/ascii.h"
#include "core/redact.h"
#include "core/table_layout.h"

namespace outbox {
namespace {

constexpr std::size_t kVersionAt = 14;  // in a UUID

constexpr std::int64_t kSecond = 1'000'000;
constexpr std::int64_t kMinute = 60;
constexpr std::int64_t kHour = 60 * kMinute;
constexpr std::int64_t kDay = 24 * kHour;
// A relay writes down within a second or so what it has finished, and that it has met an error.
constexpr std::int64_t kUnderWayUs = 5 * kSecond;

// An event may say of itself any time that a number can mean.
std::int64_t bounded(std::int64_t epoch_us) {
    constexpr std::int64_t kFirst = -62'135'596'800 * kSecond;
    constexpr std::int64_t kLast = 253'402'300'799 * kSecond;
    return std::clamp(epoch_us, kFirst, kLast);
}

std::string span_text(std::int64_t us) {
    const std::int64_t seconds = (us < 0 ? -us : us) / kSecond;
    if (seconds < 2 * kMinute) return std::to_string(seconds) + " s";
    if (seconds < 2 * kHour) return std::to_string(seconds / kMinute) + " min";
    if (seconds < 2 * kDay) return std::to_string(seconds / kHour) + " h";
    return std::to_string(seconds / kDay) + " days";
}

// "2026-... (in 12 s)", "(3 min ago)".
std::string when(std::int64_t at_us, std::int64_t now_us) {
    const std::string span = span_text(at_us - now_us);
    return second_text(at_us) + (at_us > now_us ? " (in " + span + ")" : " (" + span + " ago)");
}

std::string times(std::int64_t count) {
    return count == 1 ? "once" : std::to_string(count) + " times";
}

std::string cause(const std::string& code, const std::string& error) {
    return redact(code.empty() ? error : code + ": " + error);
}

std::string event_text(const std::string& id, std::int64_t position) {
    return "event " + id + (position > 0 ? " (position " + std::to_string(position) + ")" : "");
}

std::string route_text(const std::string& route) {
    return "route " + route;
}

std::string cause_of(const FailingEvent& failing) {
    return cause(failing.error_code, failing.error);
}

constexpr std::string_view kTopicUnknown = "OB_TOPIC_UNKNOWN";
constexpr std::string_view kPartDown = "the topic, partition or store that it needs is down";

class Explainer {
  public:
    explicit Explainer(Facts facts) : facts_(std::move(facts)) {
        if (facts_.trace.row) {
            TracedEvent& row = *facts_.trace.row;
            row.occurred_at_us = bounded(row.occurred_at_us);
            row.available_at_us = bounded(row.available_at_us);
            row.finished_at_us = bounded(row.finished_at_us);
        }
        for (DeadInfo& dead : facts_.dead) dead.occurred_at_us = bounded(dead.occurred_at_us);
        const std::int64_t since = row() ? row()->occurred_at_us : 0;
        for (const AuditLine& line : facts_.audit) {
            if (line.is_unnamed && line.at_us >= since) unnamed_ = line;
        }
        std::erase_if(facts_.audit, [](const AuditLine& line) { return line.is_unnamed; });
    }

    Explanation make() {
        tell_row();
        for (const TracedRoute& route : facts_.trace.routes) tell_route(route);
        for (const DeadInfo& dead : facts_.dead) tell_letter(dead, route_text(dead.route));
        for (const AuditLine& line : facts_.audit) {
            add(line.at_us, "", "`" + line.action + "` by " + line.who + " (" + line.detail + ")");
        }
        tell_received();
        if (facts_.webhooks) {
            for (const EndpointDelivery& one : facts_.webhooks->found) tell_delivery(one);
        }
        for (const std::string& place : facts_.unasked_webhooks) {
            out_.remarks.push_back("whether endpoints of webhooks wait for it is not known: " +
                                   place);
        }
        settle_state();
        if (out_.state == "waiting" && waits_for_routes()) tell_waits();
        if (out_.state == "waiting") tell_endpoints();
        if (out_.state == "dead") tell_dead();
        if (out_.state == "delayed") tell_delay();
        if (out_.state == "gone") tell_gone();
        if (out_.state == "unknown") tell_unknown();
        std::stable_sort(out_.timeline.begin(), out_.timeline.end(),
                         [](const Moment& one, const Moment& other) {
                             if (one.at_us == 0 || other.at_us == 0) return one.at_us != 0;
                             return one.at_us < other.at_us;
                         });
        return std::move(out_);
    }

  private:
    [[nodiscard]] const std::optional<TracedEvent>& row() const { return facts_.trace.row; }
    void add(std::int64_t at_us, std::string where, std::string text, bool bad = false) {
        out_.timeline.push_back({at_us, std::move(where), std::move(text), bad});
    }
    void wait(std::string route, std::string_view reason, std::string text) {
        out_.waits.push_back({std::move(route), reason, std::move(text)});
    }

    void tell_row() {
        if (!row()) {
            // A dead letter is a whole copy.
            if (!facts_.dead.empty()) add(facts_.dead.front().occurred_at_us, "", kWritten);
            return;
        }
        std::string text(kWritten);
        if (!row()->transaction.empty()) text += ", by transaction " + row()->transaction;
        add(row()->occurred_at_us, "", text);
        if (row()->committed_at_us != 0) add(row()->committed_at_us, "", "committed");
        if (row()->available_at_us != 0 && !facts_.trace.delayed) {
            add(row()->available_at_us, "", "due, as it was delayed until then");
        }
        if (!row()->finished) return;
        if (is_given_up()) {
            add(0, "", "given up on, as its row says", true);
        } else {
            add(row()->finished_at_us, "", "published, as its row says");
        }
    }

    // A status column tells what was given up on from what was published; here its time does.
    [[nodiscard]] bool is_given_up() const {
        return row() && row()->finished && row()->finished_at_us == 0 &&
               (!facts_.dead.empty() || was_discarded()) &&
               std::none_of(facts_.trace.routes.begin(), facts_.trace.routes.end(),
                            [](const TracedRoute& route) { return route.finished; });
    }

    [[nodiscard]] bool is_dead_in(const std::string& route) const {
        return std::any_of(facts_.dead.begin(), facts_.dead.end(),
                           [&](const DeadInfo& dead) { return dead.route == route; });
    }

    [[nodiscard]] bool was_discarded() const {
        return std::any_of(facts_.audit.begin(), facts_.audit.end(), [](const AuditLine& line) {
            return line.action.starts_with("dead discard");
        });
    }

    // A letter may have been written since the row was read.
    [[nodiscard]] bool waits_in(const TracedRoute& route) const {
        return !route.finished && !is_dead_in(route.route);
    }

    void tell_route(const TracedRoute& route) {
        const std::string where = route_text(route.route);
        if (route.failing && route.failing->attempts > 0) {
            add(route.failing->first_failed_us, where,
                "refused for the first time; " + times(route.failing->attempts) +
                    " so far, the last with " + cause_of(*route.failing),
                true);
        } else if (route.failing) {
            add(route.failing->first_failed_us, where,
                std::string(kPartDown) + ": " + cause_of(*route.failing), true);
        }
        if (!route.finished) return;
        if (route.passed) {
            add(0, where, "passed over: its filter does not want the event");
        } else if (!is_dead_in(route.route)) {
            add(0, where, finished_text());
        }
    }

    [[nodiscard]] std::string finished_text() const {
        const std::string either = "finished: acknowledged by its destination, or its dead letter ";
        if (was_discarded()) return either + "was of this route and discarded";
        if (unnamed_) return either + "was one of " + unnamed_text();
        return "acknowledged by its destination, and recorded";
    }

    [[nodiscard]] std::string unnamed_text() const {
        return "the " + std::to_string(unnamed_->events) + " that `" + unnamed_->action +
               "` ended at " + when(unnamed_->at_us, facts_.now_us) +
               ", of which the audit names the first alone";
    }

    void tell_delivery(const EndpointDelivery& one) {
        const std::string where = "endpoint " + one.endpoint;
        add(one.written_at_us, where,
            "its route wrote it down for this endpoint, and has finished it");
        if (one.failing.attempts == 0) return;
        add(one.failing.first_failed_us, where,
            "failed for the first time; " + times(one.failing.attempts) +
                " so far, the last with " + cause_of(one.failing) +
                (one.dead ? "; given up on" : ""),
            true);
    }

    void tell_letter(const DeadInfo& dead, const std::string& where) {
        add(dead.died_at_us, where,
            "given up on, attempts: " + std::to_string(dead.attempts) + "; " +
                cause(dead.error_code, dead.error),
            true);
        if (dead.retry_requested_at_us == 0) return;
        add(dead.retry_requested_at_us, where, "asked to be delivered again; it was not yet");
    }

    void tell_received() {
        for (const std::string& place : facts_.unasked) {
            out_.remarks.push_back("what this consumer's database knows is not said: " + place);
        }
        if (!facts_.received) return;
        if (!facts_.received_as.empty()) {
            out_.remarks.push_back("consumers know an event " + facts_.received_as +
                                   ", which is its id in records of the format debezium");
        }
        for (const ReceivedMessage& one : facts_.received->found) {
            if (!one.mailbox.empty()) {
                std::string text = "received, and not applied yet";
                if (one.earlier_of_key > 0) {
                    text += "; " + std::to_string(one.earlier_of_key) +
                            " of its key are there before it";
                }
                add(one.received_at_us, "mailbox " + one.mailbox, text);
            } else if (one.dead) {
                tell_letter(*one.dead, "consumer " + one.consumer);
            } else if (one.discarded) {
                add(one.applied_at_us, "consumer " + one.consumer,
                    "given up on; its dead letter was discarded since: never applied", true);
            } else {
                add(one.applied_at_us, "consumer " + one.consumer, "applied; a repeat is dropped");
            }
        }
    }

    [[nodiscard]] bool was_received() const {
        return facts_.received && !facts_.received->found.empty();
    }

    [[nodiscard]] bool waits_for_routes() const {
        const auto& routes = facts_.trace.routes;
        const bool unfinished = std::any_of(routes.begin(), routes.end(),
                                            [&](const TracedRoute& r) { return waits_in(r); });
        return row() && !row()->finished && (unfinished || routes.empty());
    }

    // Whether an endpoint waits for it, or has given up on it.
    [[nodiscard]] bool any_delivery(bool dead) const {
        return facts_.webhooks &&
               std::any_of(facts_.webhooks->found.begin(), facts_.webhooks->found.end(),
                           [&](const EndpointDelivery& one) { return one.dead == dead; });
    }

    void settle_state() {
        if (row() && facts_.trace.delayed) {
            out_.state = "delayed";
        } else if (waits_for_routes() || any_delivery(/*dead=*/false)) {
            out_.state = "waiting";
        } else if (!facts_.dead.empty() || any_delivery(/*dead=*/true)) {
            out_.state = "dead";
        } else if (row() && !is_given_up()) {
            out_.state = "sent";
        } else if (was_received()) {
            const auto applied = [](const ReceivedMessage& one) {
                return one.mailbox.empty() && !one.dead && !one.discarded;
            };
            out_.state =
                std::any_of(facts_.received->found.begin(), facts_.received->found.end(), applied)
                    ? "applied"
                    : "sent";
        } else if (!facts_.trace.routes.empty() || !facts_.audit.empty()) {
            out_.state = "gone";
        }
        if (out_.state == "sent" && !was_received() && facts_.received) {
            out_.remarks.emplace_back(kNotReceived);
        }
    }

    void tell_delay() {
        const std::int64_t due = row()->available_at_us;
        if (due > facts_.now_us) {
            wait("", "delayed", "it is delayed until " + when(due, facts_.now_us));
            return;
        }
        const std::string since = "it was due at " + when(due, facts_.now_us);
        if (facts_.lease.held && facts_.now_us - due > kUnderWayUs) {
            wait("", "delayed",
                 since +
                     ", and the relay that leads has not moved it into the outbox table yet: many "
                     "were due before it, or the table refuses it (its triggers, constraints and "
                     "indexes; event=delayed_refused in the relay's log has the error), which is "
                     "tried again each minute");
            return;
        }
        wait("", "delayed", since + ", and only a relay that leads moves what is due");
        if (!facts_.lease.held) tell_no_relay();
    }

    void tell_no_relay() {
        std::string text = "no relay leads, so that nothing is sent";
        if (facts_.lease.epoch > 0) {
            text += "; the last one had epoch " + std::to_string(facts_.lease.epoch);
        }
        wait("", "no_relay", text + "; start `outbox relay`");
    }

    // In the order in which an operator would mend it.
    void tell_endpoint(const EndpointDelivery& one) {
        const std::string where = "endpoint " + one.endpoint + ": ";
        if (one.endpoint_disabled) {
            wait("", "endpoint_disabled",
                 where + "it is disabled" +
                     (one.disabled_because.empty() ? "" : ": " + redact(one.disabled_because)) +
                     "; `outbox webhook enable " + one.endpoint + "` sends what waits for it");
            return;
        }
        const std::int64_t paused_us =
            one.paused_until_us > facts_.now_us ? one.paused_until_us : 0;
        if (paused_us != 0) {
            wait("", "endpoint_paused",
                 where + "its circuit is open until " + when(paused_us, facts_.now_us) +
                     (one.last_error.empty() ? "" : ": " + redact(one.last_error)));
            out_.waits.back().next_attempt_us = paused_us;
        }
        if (one.failing.attempts > 0) {
            wait("", "endpoint_failing",
                 where + "it failed " + times(one.failing.attempts) +
                     "; the next attempt is due at " +
                     when(one.failing.next_attempt_us, facts_.now_us) +
                     "; the last error: " + cause_of(one.failing));
            out_.waits.back().next_attempt_us = one.failing.next_attempt_us;
        } else if (!one.behind.empty()) {
            wait("", "endpoint_behind",
                 where + "behind event " + one.behind +
                     " of its key, which failed there; see `outbox explain " + one.behind + "`");
            out_.waits.back().behind = one.behind;
        } else if (paused_us == 0) {
            wait("", "endpoint_under_way",
                 where + "nothing that the database knows holds it" +
                     (one.earlier.count == 0
                          ? std::string()
                          : ", and " + std::to_string(one.earlier.count) +
                                (one.earlier.more ? " or more" : "") + " go there before it"));
        }
    }

    void tell_endpoints() {
        if (!facts_.webhooks) return;
        const bool unserved =
            std::any_of(facts_.webhooks->found.begin(), facts_.webhooks->found.end(),
                        [](const EndpointDelivery& one) { return !one.dead && !one.served; });
        if (unserved) {
            wait("", "endpoint_not_served",
                 "no relay delivers webhooks: one with a route webhook+... to their database does");
        }
        for (const EndpointDelivery& one : facts_.webhooks->found) {
            if (!one.dead) tell_endpoint(one);
        }
        tell_given_up();
    }

    void tell_given_up() {
        if (!facts_.webhooks) return;
        for (const EndpointDelivery& one : facts_.webhooks->found) {
            if (!one.dead) continue;
            out_.remarks.push_back(
                "endpoint " + one.endpoint +
                " was given up on: mend the cause, then `outbox webhook enable " + one.endpoint +
                "` sends all that failed there once more, fresh attempts for each");
        }
        if (facts_.webhooks->more) {
            out_.remarks.emplace_back(
                "more endpoints than are named here have not got it: `outbox webhook list`");
        }
    }

    void tell_dead() {
        tell_given_up();
        if (!facts_.dead.empty()) tell_letters();
    }

    void tell_letters() {
        const bool asked =
            std::all_of(facts_.dead.begin(), facts_.dead.end(), [](const DeadInfo& dead) {
                return dead.retry_requested_at_us != 0 && dead.route_known;
            });
        const bool any =
            std::any_of(facts_.dead.begin(), facts_.dead.end(),
                        [](const DeadInfo& dead) { return dead.retry_requested_at_us != 0; });
        if (any) tell_paused();
        if (asked && !facts_.lease.held) tell_no_relay();
        if (asked) return;
        out_.remarks.push_back(
            "`outbox dead show " + facts_.id +
            "` shows the whole letter; mend the cause, then `outbox dead retry " + facts_.id +
            "` or `outbox dead discard " + facts_.id + "`");
        for (const DeadInfo& dead : facts_.dead) {
            if (dead.route_known) continue;
            out_.remarks.push_back("its relay has no route '" + dead.route +
                                   "' any more: `outbox dead retry " + facts_.id +
                                   " --to ROUTE` takes another");
        }
    }

    // Null: it is not.
    [[nodiscard]] const PausedTenant* paused_tenant() const {
        // A letter whose row is gone has the name itself.
        const std::string& tenant = row() ? row()->tenant_id : facts_.dead.front().tenant_id;
        const auto found =
            std::find_if(facts_.paused.begin(), facts_.paused.end(),
                         [&](const PausedTenant& one) { return one.tenant_id == tenant; });
        return found == facts_.paused.end() ? nullptr : &*found;
    }

    void tell_paused() {
        const PausedTenant* paused = paused_tenant();
        if (paused == nullptr) return;
        wait("", "tenant_paused",
             "its tenant " + paused->tenant_id + " is paused since " +
                 when(paused->since_us, facts_.now_us) + " by " + paused->who + ": " +
                 paused->reason + "; `outbox tenant resume " + paused->tenant_id +
                 " --reason TEXT` lets it go on");
    }

    void tell_waits() {
        tell_paused();
        const bool of_others = facts_.trace.routes.empty() && facts_.others_are_served;
        if (!facts_.lease.held && !of_others) tell_no_relay();
        if (facts_.table.is_other) {
            wait("", "other_table", other_table_text("nothing is known of this event"));
            return;
        }
        if (facts_.trace.routes.empty()) {
            wait("", "no_routes",
                 of_others
                     ? "relays lead that serve other tenants, and none that serves its own, " +
                           row()->tenant_id + ": start one with `--tenant " + row()->tenant_id +
                           "`, or one that serves all"
                     : "the table has no route that serves it: a relay makes its routes "
                       "known when it starts");
        }
        for (const TracedRoute& route : facts_.trace.routes) {
            if (waits_in(route)) tell_waits_of(route);
        }
    }

    [[nodiscard]] const RouteInfo* info_of(const std::string& route) const {
        const auto found = std::find_if(facts_.routes.begin(), facts_.routes.end(),
                                        [&](const RouteInfo& info) { return info.name == route; });
        return found == facts_.routes.end() ? nullptr : &*found;
    }

    void tell_waits_of(const TracedRoute& route) {
        const std::size_t before = out_.waits.size();
        const RouteInfo* info = info_of(route.route);
        const bool open = info != nullptr && !info->circuit.empty() && info->circuit != "closed";
        if (open && facts_.lease.held) {
            wait(route.route, "circuit_open",
                 "its circuit is " + std::string(info->circuit == "open" ? "open" : "half open") +
                     ": all of the route waits, and no attempt is counted; " +
                     last_error_of(*info));
        }
        if (route.failing) tell_failing(route);
        if (!route.earlier.id.empty()) tell_earlier(route);
        const bool behind_letter = tell_blocking_letter(route);
        const bool told = open || route.failing || route.earlier.failing || behind_letter;
        if (!told && info != nullptr && may_concern(*info)) {
            wait(route.route, "route_error", last_error_of(*info) + missing_topic(*info));
        }
        const bool known = out_.waits.size() > before || paused_tenant() != nullptr;
        if (!known && facts_.lease.held) tell_nothing_known(route);
    }

    void tell_failing(const TracedRoute& route) {
        const FailingEvent& failing = *route.failing;
        if (failing.attempts > 0) {
            wait(route.route, "failing",
                 "it failed " + times(failing.attempts) + "; the next attempt is due at " +
                     when(failing.next_attempt_us, facts_.now_us) +
                     "; the last error: " + cause_of(failing));
            out_.waits.back().next_attempt_us = failing.next_attempt_us;
            return;
        }
        std::string text(kPartDown);
        if (failing.error_code == kTopicUnknown) {
            text = "the topic that it goes to is missing";
            if (!row()->topic.empty()) text += " (the event names '" + row()->topic + "')";
        }
        wait(route.route, "part_down",
             text + ", and no attempt is counted; it goes on by itself once that is mended: " +
                 cause_of(failing));
    }

    void tell_earlier(const TracedRoute& route) {
        const EarlierOfKey& earlier = route.earlier;
        std::string text = "behind " + event_text(earlier.id, earlier.position) + " of its key";
        const bool counted = earlier.failing && earlier.failing->attempts > 0;
        if (counted) {
            text += ", which failed " + times(earlier.failing->attempts) + " and is due again at " +
                    when(earlier.failing->next_attempt_us, facts_.now_us) +
                    "; its last error: " + cause_of(*earlier.failing);
        } else if (earlier.failing) {
            text += ", of which " + std::string(kPartDown) + ": " + cause_of(*earlier.failing);
        } else {
            text += ", which is not sent yet";
        }
        if (earlier.count.count > 1) {
            text += "; " + std::to_string(earlier.count.count) +
                    (earlier.count.more ? " or more" : "") + " of its key are before it";
        }
        wait(route.route, "behind", text + "; see `outbox explain " + earlier.id + "`");
        out_.waits.back().behind = earlier.id;
        if (counted) out_.waits.back().next_attempt_us = earlier.failing->next_attempt_us;
    }

    bool tell_blocking_letter(const TracedRoute& route) {
        const auto letter =
            std::find_if(facts_.dead_of_key.begin(), facts_.dead_of_key.end(),
                         [&](const DeadInfo& dead) { return dead.route == route.route; });
        if (letter == facts_.dead_of_key.end()) return false;
        const std::optional<bool> blocks =
            facts_.blocks_key ? facts_.blocks_key(route.route) : std::nullopt;
        if (blocks && !*blocks) return false;
        std::string text = "behind the dead letter of " + event_text(letter->id, letter->position) +
                           " of its key, given up on at " + second_text(letter->died_at_us) + ": " +
                           cause(letter->error_code, letter->error);
        text += letter->retry_requested_at_us != 0
                    ? "; it was asked to be delivered again"
                    : "; `outbox dead retry " + letter->id + "` or `outbox dead discard " +
                          letter->id + "` sets the key free";
        if (!blocks) {
            text +=
                ". That holds where the route has on_dead_letter = \"block_key\", which only "
                "its configuration says (--config FILE)";
        }
        wait(route.route, "behind_dead", text);
        out_.waits.back().behind = letter->id;
        return true;
    }

    [[nodiscard]] std::string last_error_of(const RouteInfo& info) const {
        if (info.last_error.empty()) return "no error is known";
        return "the route's last error, at " + when(info.last_error_at_us, facts_.now_us) + ": " +
               redact(info.last_error);
    }

    // An error that was met since the event could be sent.
    [[nodiscard]] bool may_concern(const RouteInfo& info) const {
        if (info.last_error.empty()) return false;
        return info.last_error_at_us >=
               std::max(row()->occurred_at_us, row()->available_at_us) - kSecond;
    }

    [[nodiscard]] std::string missing_topic(const RouteInfo& info) const {
        if (!info.last_error.starts_with(kTopicUnknown)) return {};
        const std::string& topic = row()->topic;
        if (topic.empty()) return ". Events of a topic that is missing wait until it is made";
        if (info.last_error.find(topic) != std::string::npos) {
            return ". The error names the topic of this event, '" + topic +
                   "': it waits until that is made";
        }
        return ". The error names another topic than this event's, '" + topic + "'";
    }

    void tell_nothing_known(const TracedRoute& route) {
        const std::int64_t since = std::max(row()->occurred_at_us, row()->available_at_us);
        if (since != 0 && facts_.now_us - since < kUnderWayUs) {
            wait(route.route, "under_way",
                 "nothing that the database knows holds it: it is under way, or is recorded within "
                 "a second or so");
            return;
        }
        std::string text =
            "nothing that the database knows holds it; the relay's log may say more (event="
            "part_down, event=connection_ended), and where the relay has a tenant_rate or a "
            "tenant_share its tenant " +
            row()->tenant_id + " may have reached it";
        if (const RouteInfo* info = info_of(route.route); info && !info->last_error.empty()) {
            text += ". From before the event: " + last_error_of(*info);
        }
        for (const OpenWriter& writer : facts_.writers) {
            if (writer.began_at_us == 0 || facts_.now_us - writer.began_at_us < kUnderWayUs) {
                continue;
            }
            wait(route.route, "open_transaction",
                 text +
                     ". A transaction that has written to the table is open, behind which reading "
                     "stops once 250,000 positions below others are not seen: " +
                     describe(writer, facts_.now_us));
            return;
        }
        wait(route.route, "under_way", text);
    }

    void tell_gone() {
        if (!row() && !facts_.trace.routes.empty()) {
            out_.remarks.push_back(
                "its row is gone from " + facts_.table.name +
                ", and attempts of it are still known: somebody deleted the row, or it was sent "
                "since; the relay forgets the attempts");
            return;
        }
        const std::string& last = facts_.audit.back().action;
        if (last.starts_with("scheduled cancel")) {
            out_.remarks.emplace_back("it was cancelled before it was due: it was never sent");
        } else if (last.starts_with("dead discard")) {
            out_.remarks.emplace_back(
                "its dead letter was discarded: the route of that never delivered it");
        } else {
            out_.remarks.emplace_back(
                "its dead letter is gone since: the relay removes it once it was delivered, unless "
                "somebody deleted it by hand");
        }
    }

    void tell_unknown() {
        out_.remarks.push_back("nothing in " + facts_.table.name +
                               ", its delayed events, dead letters and failing events, nor in "
                               "what operators did, has this id");
        if (unnamed_) {
            out_.remarks.push_back("its dead letter may have been one of " + unnamed_text());
        }
        const std::int64_t made = time_of_uuid7(facts_.id);
        if (made != 0) {
            out_.remarks.push_back("the id itself says that it was made at " +
                                   when(made, facts_.now_us));
        }
        if (looks_like_uuid(facts_.id) && facts_.id[kVersionAt] == '5') {
            out_.remarks.emplace_back(
                "ids of version 5 are made by `outbox replay --as-new`, too: the header "
                "outbox-replay of its record names the run (outbox replay list)");
        }
        if (facts_.table.removes) {
            out_.remarks.emplace_back(
                "rows go once every route has finished them, so that it was either delivered, or "
                "its transaction was rolled back, or somebody deleted its row or dead letter: what "
                "is kept does not tell which");
        } else {
            out_.remarks.emplace_back(
                "rows that are published stay until they are pruned, so that its transaction was "
                "rolled back, or its row was pruned or deleted: what is kept does not tell which");
        }
        if (facts_.webhooks) {
            out_.remarks.emplace_back(
                "no endpoint of webhooks in the databases that were asked waits for it; what was "
                "delivered to one leaves nothing, nor does what found its queue full (`missed` in "
                "`outbox webhook list`)");
        }
        tell_writers();
        for (const std::string& other : facts_.table.others) {
            out_.remarks.push_back("this database has another outbox table: --table " + other);
        }
        if (!facts_.received && facts_.unasked.empty()) {
            out_.remarks.emplace_back("a consumer's inbox may know it: --consumer-db URL");
        } else if (facts_.received && !was_received()) {
            out_.remarks.emplace_back(kNotReceived);
            tell_floors(made);
        }
    }

    void tell_writers() {
        if (!facts_.table.tells_writers) {
            out_.remarks.emplace_back(
                "an event of a transaction that is still open is not seen before it commits");
            return;
        }
        if (facts_.writers.empty()) {
            out_.remarks.push_back("no transaction that has written to " + facts_.table.name +
                                   " is open: it is not about to appear");
            return;
        }
        for (const OpenWriter& writer : facts_.writers) {
            out_.remarks.push_back("a transaction that has written to " + facts_.table.name +
                                   " is open, and what it wrote is not seen before it commits: " +
                                   describe(writer, facts_.now_us));
        }
    }

    void tell_floors(std::int64_t made_us) {
        for (const ConsumerInfo& consumer : facts_.received->consumers) {
            if (consumer.floor_us == 0 || (made_us != 0 && made_us >= consumer.floor_us)) continue;
            out_.remarks.push_back("consumer " + consumer.name +
                                   " may have forgotten it: ids of messages from before " +
                                   second_text(consumer.floor_us) + " were pruned");
        }
    }

    static constexpr const char* kWritten = "written (its occurred_at, by the writer's clock)";
    static constexpr std::string_view kNotReceived =
        "no mailbox, inbox or dead letter of a consumer's database that answered has it (a "
        "consumer that goes "
        "by offsets or sequences keeps no ids)";

    Facts facts_;
    std::optional<AuditLine> unnamed_;  // The last that may have ended its dead letter.
    Explanation out_;
};

}  // namespace

Explanation explain(const Facts& facts) {
    return Explainer(facts).make();
}

std::string describe(const OpenWriter& writer, std::int64_t now_us) {
    if (!writer.prepared.empty()) {
        return "prepared transaction '" + writer.prepared + "' of user " + writer.user +
               ", since " + when(writer.began_at_us, now_us) + ": COMMIT or ROLLBACK PREPARED";
    }
    std::string text = "pid " + std::to_string(writer.pid) + " (application '" +
                       writer.application + "', user " + writer.user + ")";
    if (writer.state.empty()) {
        return text + "; since when only " + std::string(writer.seen_by) + " may see";
    }
    text += ", " + writer.state + ", begun " + when(writer.began_at_us, now_us);
    if (writer.statement_at_us != 0) {
        text += ", last statement " + when(writer.statement_at_us, now_us);
    }
    return text;
}

std::int64_t time_of_uuid7(std::string_view id) {
    constexpr std::size_t kVariantAt = 19;
    const bool version_7 = looks_like_uuid(id) && id[kVersionAt] == '7';
    if (!version_7 || std::string_view("89abAB").find(id[kVariantAt]) == std::string_view::npos) {
        return 0;
    }
    std::int64_t milliseconds = 0;
    for (const char c : id.substr(0, kVersionAt - 1)) {
        if (c == '-') continue;
        const int digit = is_digit(c) ? c - '0' : lower(c) - 'a' + 10;
        milliseconds = milliseconds * 16 + digit;
    }
    return milliseconds * 1'000;
}

std::string second_text(std::int64_t epoch_us) {
    using std::chrono::days;
    using std::chrono::floor;
    using std::chrono::seconds;
    if (epoch_us == 0) return {};
    const std::chrono::sys_time<std::chrono::microseconds> time{
        std::chrono::microseconds(bounded(epoch_us))};
    const auto day = floor<days>(time);
    const std::chrono::year_month_day date(day);
    const std::chrono::hh_mm_ss<seconds> clock(floor<seconds>(time) - day);
    const auto digits = [](auto number, std::size_t count) {
        std::string text = std::to_string(number);
        return text.size() < count ? std::string(count - text.size(), '0') + text : text;
    };
    return digits(static_cast<int>(date.year()), 4) + "-" +
           digits(static_cast<unsigned>(date.month()), 2) + "-" +
           digits(static_cast<unsigned>(date.day()), 2) + "T" + digits(clock.hours().count(), 2) +
           ":" + digits(clock.minutes().count(), 2) + ":" + digits(clock.seconds().count(), 2) +
           "Z";
}

}  // namespace outbox
