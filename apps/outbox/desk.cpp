#include "desk.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/explanation.h"
#include "core/redact.h"
#include "core/utf8.h"
#include "desk_change.h"
#include "letters.h"
#include "print.h"
#include "registry.h"
#include "replays.h"
#include "report.h"
#include "sagas.h"
#include "top_view.h"

namespace outbox::app {
namespace {

using dashboard::Question;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSharedFor{900};  // a reading, by all pages that are open
constexpr std::chrono::seconds kReopenAfter{10};      // a migrated database is seen as it is
constexpr std::chrono::seconds kAwayFor{15};  // a consumer's database that did not answer is let be
constexpr std::size_t kLettersOnPage = 50;
constexpr std::size_t kAuditOnPage = 50;
constexpr std::size_t kMaxHeld = 200;
constexpr std::size_t kMaxReplays = 50;
constexpr std::size_t kRefusalsOfReplay = 5;
constexpr std::size_t kMaxSagas = 100;
constexpr std::size_t kOfKey = 50;
std::int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::string value_of(const Question& question, const std::string& name) {
    const auto found = question.values.find(name);
    return found == question.values.end() ? std::string() : found->second;
}

Result<std::int64_t> number_of(const Question& question, const std::string& name) {
    const std::string text = value_of(question, name);
    if (text.empty()) return std::int64_t{0};
    std::int64_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || number < 0) {
        return wrong(name + " is no number");
    }
    return number;
}

const std::set<std::string> kFilterFields{"id",  "route",      "event_type",
                                          "key", "error_code", "tenant"};

DeadFilter filter_of(const Question& question) {
    DeadFilter filter;
    if (const std::string id = value_of(question, "id"); !id.empty()) filter.ids = {id};
    filter.route = value_of(question, "route");
    filter.event_type = value_of(question, "event_type");
    filter.key = value_of(question, "key");
    filter.error_code = value_of(question, "error_code");
    filter.tenant = value_of(question, "tenant");
    return filter;
}

ordered_json json_of(const LedgerRoute& route) {
    return {{"name", route.name},
            {"source", route.source},
            {"destination", text_or_null(redact(route.destination))},
            {"since", time_or_null(route.since_us)},
            {"unfinished", route.unfinished.count},
            {"unfinished_is_more", route.unfinished.more}};
}

ordered_json json_of(const WaitingEvent& event) {
    return {{"route", event.route},
            {"id", event.id},
            {"position", event.position > 0 ? ordered_json(event.position) : ordered_json()},
            {"key", text_or_null(event.key)},
            {"attempts", event.attempts},
            {"first_failed_at", time_or_null(event.first_failed_at_us)},
            {"next_attempt_at", time_or_null(event.next_attempt_at_us)},
            {"error_code", event.error_code},
            {"error", redact(event.error)}};
}

ordered_json json_of(const AuditLine& line) {
    return {{"audit_id", line.audit_id}, {"at", time_or_null(line.at_us)},
            {"who", line.who},           {"action", line.action},
            {"of", line.source},         {"detail", line.detail},
            {"events", line.events}};
}

class DeskState {
  public:
    explicit DeskState(DeskConfig config)
        : config_(std::move(config)), reader_(config_.source, config_.table_named) {
        for (const std::string& url : config_.consumer_urls) {
            ConsumerPlace& place = consumers_.emplace_back();
            place.config = config_.source;
            place.config.url = url;
        }
    }

    Result<ordered_json> answer(const Question& question) {
        if (question.changes) {
            if (question.path == "/api/letters/retry") return change(question, true);
            if (question.path == "/api/letters/discard") return change(question, false);
            return ordered_json();
        }
        for (const auto& [name, value] : question.values) {
            if (!is_storable(value))
                return wrong(to_printable(name) + " is no text that a database can have");
        }
        if (question.path == "/api/overview") return overview();
        if (question.path == "/api/held") return held();
        if (question.path == "/api/letters") return letters(question);
        if (question.path == "/api/letters/count") return count(question);
        if (question.path == "/api/letter") return letter(question);
        if (question.path == "/api/explain") return explanation(question);
        if (question.path == "/api/sagas") return sagas(question);
        if (question.path == "/api/saga") return saga(question);
        if (question.path == "/api/consumers") return consumers();
        if (question.path == "/api/replays") return replays();
        if (question.path == "/api/tenants") return tenants();
        if (question.path == "/api/audit") return audit(question);
        return ordered_json();
    }

  private:
    struct ConsumerPlace {
        SourceConfig config;
        std::unique_ptr<ConsumerOperations> operations = {};
        Clock::time_point opened_at = {};
        Clock::time_point away_until = {};
        ErrorInfo error = {};
    };

    Result<ordered_json> overview() {
        const auto now = Clock::now();
        if (overview_ && now - overview_at_ < kSharedFor) return *overview_;
        if (now - opened_at_ > kReopenAfter) {
            reader_.close();
            opened_at_ = now;
        }
        overview_.reset();
        const auto report = reader_.read(true);
        if (!report.ok()) return report.error();
        overview_at_ = Clock::now();
        if (report->routes.empty()) reader_.close();  // a relay may be about to make its tables
        ordered_json out = app::json_of(*report);
        out["has_source"] = report->has_source;
        out["has_sagas"] = report->has_sagas;
        out["has_consumers"] = !config_.consumer_urls.empty() || !report->consumers.empty() ||
                               !report->mailboxes.empty();
        ordered_json ledgers = ordered_json::array();
        for (const LedgerRoute& route : report->ledgers) ledgers.push_back(json_of(route));
        out["ledgers"] = ledgers;
        out["database"] = redact(config_.source.url);
        out["version"] = OUTBOX_VERSION;
        out["now"] = time_text(now_us());
        out["read_ms"] =
            std::chrono::duration_cast<std::chrono::milliseconds>(overview_at_ - now).count();
        out["this_relay"] = config_.relay ? config_.relay() : ordered_json();
        overview_ = out;
        return out;
    }

    Result<std::unique_ptr<Operations>> operations() {
        if (table_.empty()) {
            const auto source = make_source(config_.source);
            if (!source.ok()) return source.error();
            table_ = (*source)->table_name();
        }
        return open_operations(config_.source, table_);
    }

    Result<ordered_json> held() {
        auto places = open_places(config_.source, config_.blocks_key);
        if (!places.ok()) return places.error();
        const auto events = places->operations->waiting_events(kMaxHeld + 1);
        if (!events.ok()) return events.error();
        ordered_json out{{"events", ordered_json::array()}};
        for (const WaitingEvent& event : *events) {
            if (out["events"].size() < kMaxHeld) out["events"].push_back(json_of(event));
        }
        out["events_are_more"] = events->size() > kMaxHeld;
        auto letters = blocking_letters(*places);
        if (!letters.ok()) return letters;
        out["dead"] = *letters;
        const auto writers = places->tracer->open_writers();
        if (!writers.ok()) return writers.error();
        out["tells_writers"] = places->tracer->table().tells_writers;
        out["writers"] = ordered_json::array();
        for (const OpenWriter& writer : *writers) {
            out["writers"].push_back({{"pid", writer.pid},
                                      {"began_at", time_or_null(writer.began_at_us)},
                                      {"text", describe(writer, now_us())}});
        }
        return out;
    }

    // Of routes that are known to keep the later events of a key behind its dead letter.
    Result<ordered_json> blocking_letters(Places& places) {
        ordered_json out = ordered_json::array();
        const auto routes = places.operations->routes();
        if (!routes.ok()) return routes.error();
        for (const RouteInfo& route : *routes) {
            if (route.dead == 0 || !config_.blocks_key(route.name).value_or(false)) continue;
            const auto letters = places.operations->dead({.route = route.name}, 0, kMaxHeld, false);
            if (!letters.ok()) return letters.error();
            for (const DeadInfo& dead : *letters) {
                if (!dead.unmatched) out.push_back(app::json_of(dead, false));
            }
        }
        return out;
    }

    // Asks by a connection that stays open for a while: pages follow one another.
    Result<ordered_json> look(const std::function<Result<ordered_json>(Operations&)>& ask) {
        const bool kept = looking_ != nullptr && Clock::now() - looking_since_ < kReopenAfter;
        if (kept) {
            auto answer = ask(*looking_);
            if (answer.ok()) return answer;
        }
        looking_.reset();
        auto operations = this->operations();
        if (!operations.ok()) return operations.error();
        auto answer = ask(**operations);
        if (answer.ok()) {
            looking_ = std::move(*operations);
            looking_since_ = Clock::now();
        }
        return answer;
    }

    Result<ordered_json> letters(const Question& question) {
        const auto after = number_of(question, "after");
        if (!after.ok()) return after.error();
        const DeadFilter filter = filter_of(question);
        return look([&](Operations& operations) -> Result<ordered_json> {
            const auto letters = operations.dead(filter, *after, kLettersOnPage + 1, false);
            if (!letters.ok()) return letters.error();
            ordered_json total;
            if (*after == 0) {  // later pages have it from the first: it reads all that match
                const auto counted = operations.count_dead(filter);
                if (!counted.ok()) return counted.error();
                total = *counted;
            }
            ordered_json list = ordered_json::array();
            for (const DeadInfo& dead : *letters) {
                if (list.size() < kLettersOnPage) list.push_back(app::json_of(dead, false));
            }
            const bool more = letters->size() > kLettersOnPage;
            return ordered_json{{"letters", list},
                                {"total", total},
                                {"page", kLettersOnPage},
                                {"next", more ? list.back()["dead_id"] : ordered_json()}};
        });
    }

    // What is decided by it must not be counted without what was meant to restrict it.
    Result<ordered_json> count(const Question& question) {
        for (const auto& [name, value] : question.values) {
            if (!kFilterFields.contains(name)) return wrong(to_printable(name) + " is not known");
        }
        DeadFilter filter = filter_of(question);
        return look([&](Operations& operations) -> Result<ordered_json> {
            const auto last = operations.last_dead();
            if (!last.ok()) return last.error();
            filter.up_to = *last;
            const auto total = operations.count_dead(filter);
            if (!total.ok()) return total.error();
            const auto gone = operations.routes_of_dead(filter, true);
            if (!gone.ok()) return gone.error();
            std::set<std::string> names;
            for (const DeadRoute& route : *gone) names.insert(route.name);
            const auto idle = operations.count_dead(filter.of_idle());
            if (!idle.ok()) return idle.error();
            return ordered_json{{"matched", *total},
                                {"retrying", std::max<std::int64_t>(*total - *idle, 0)},
                                {"up_to", *last},
                                {"routes_that_are_gone", names}};
        });
    }

    Result<ordered_json> letter(const Question& question) {
        const auto dead_id = number_of(question, "dead_id");
        if (!dead_id.ok()) return dead_id.error();
        const DeadFilter filter = filter_of(question);
        if (filter.ids.empty()) return wrong("which one? Give its id and its dead_id");
        return look([&](Operations& operations) -> Result<ordered_json> {
            const auto letters = operations.dead(filter, *dead_id - 1, 1, true);
            if (!letters.ok()) return letters.error();
            if (letters->empty() || letters->front().dead_id != *dead_id) return ordered_json();
            return whole(letters->front());
        });
    }

    static ordered_json whole(const DeadInfo& dead) {
        ordered_json out = app::json_of(dead, false);
        out["routing_key"] = text_or_null(dead.routing_key);
        out["schema_id"] = text_or_null(dead.schema_id);
        out["schema_version"] = text_or_null(dead.schema_version);
        out["headers"] = text_or_null(dead.headers);
        out["metadata"] = text_or_null(dead.metadata);
        out["payload"] = dead.payload_is_null ? ordered_json() : ordered_json(dead.payload);
        out["payload_bytes"] = dead.payload.size();
        out["payload_is_text"] = is_utf8(dead.payload);
        out["payload_shown_bytes"] = std::min(dead.payload.size(), dashboard::kMaxPayloadBytes);
        return out;
    }

    Result<ordered_json> change(const Question& question, bool retry) {
        const auto change = change_of(question.body);
        if (!change.ok()) return change.error();
        auto operations = this->operations();
        if (!operations.ok()) return operations.error();
        return change_letters(**operations, *change, retry);
    }

    Result<ordered_json> explanation(const Question& question) {
        const std::string id = value_of(question, "id");
        const std::string key = value_of(question, "key");
        const std::string tenant = value_of(question, "tenant");
        if (id.empty() == key.empty()) return wrong("give the id of an event, or a key");
        if (key.empty() && !tenant.empty()) return wrong("a tenant goes with a key");
        if (id.size() > kMaxIdBytes) {
            return wrong("an id has at most " + std::to_string(kMaxIdBytes) + " bytes");
        }
        auto places = open_places(config_.source, config_.blocks_key);
        if (!places.ok()) return places.error();
        if (id.empty()) return explanation_of_key(*places, key, tenant, kOfKey);
        for (ConsumerPlace& place : consumers_) {
            places->consumers.push_back(
                {place.config.url, [&place](const std::string& one) { return find(place, one); }});
        }
        return explanation_of_id(*places, id);
    }

    Result<saga::SagaOperations> saga_operations() {
        auto sql = open_consumer_sql(config_.source.url,
                                     static_cast<int>(config_.source.connect_timeout.count()),
                                     {config_.source.owners, true});
        if (!sql.ok()) return sql.status();
        return saga::SagaOperations(std::move(*sql));
    }

    Result<ordered_json> sagas(const Question& question) {
        saga::SagaFilter filter;
        filter.name = value_of(question, "name");
        filter.state = value_of(question, "state");
        auto operations = saga_operations();
        if (!operations.ok()) return operations.error();
        const auto there = operations->has_table();
        if (!there.ok()) return there.error();
        if (!*there) return ordered_json();
        const auto sagas = operations->sagas(filter, kMaxSagas, false);
        if (!sagas.ok()) return sagas.error();
        const auto total = operations->count(filter);
        if (!total.ok()) return total.error();
        ordered_json list = ordered_json::array();
        for (const saga::SagaInfo& info : *sagas) list.push_back(app::json_of(info, false));
        return ordered_json{{"sagas", list}, {"total", *total}};
    }

    Result<ordered_json> saga(const Question& question) {
        saga::SagaFilter filter;
        if (value_of(question, "id").empty()) return wrong("which one? Give its id");
        filter.ids = {value_of(question, "id")};
        auto operations = saga_operations();
        if (!operations.ok()) return operations.error();
        const auto sagas = operations->sagas(filter, 1, true);
        if (!sagas.ok()) return sagas.error();
        if (sagas->empty()) return ordered_json();
        ordered_json out = app::json_of(sagas->front(), true);
        out["data"] = sagas->front().instance.data;  // as text: it is not ours
        return out;
    }

    Result<ordered_json> consumers() {
        ordered_json out = ordered_json::array();
        for (ConsumerPlace& place : consumers_) {
            ordered_json one{{"database", redact(place.config.url)}};
            const auto report = consumers_of(place);
            if (report.ok()) {
                const ordered_json all = app::json_of(*report);
                one["consumers"] = all["consumers"];
                one["mailboxes"] = all["mailboxes"];
            }
            one["error"] =
                report.ok() ? ordered_json() : ordered_json(redact(describe(report.error())));
            out.push_back(one);
        }
        return ordered_json{{"databases", out}};
    }

    static ErrorInfo let_be(ConsumerPlace& place, const ErrorInfo& error) {
        place.error = error;
        place.operations.reset();
        place.away_until = Clock::now() + kAwayFor;
        return error;
    }

    // The connection stays open for a while.
    static Status open(ConsumerPlace& place) {
        if (Clock::now() < place.away_until) return place.error;
        if (place.operations == nullptr || Clock::now() - place.opened_at > kReopenAfter) {
            auto operations = open_consumer_operations(place.config);
            if (!operations.ok()) return let_be(place, operations.error());
            place.operations = std::move(*operations);
            place.opened_at = Clock::now();
        }
        const auto there = place.operations->has_tables();
        if (!there.ok()) return let_be(place, there.error());
        if (*there) return {};
        return let_be(place, {ErrorCode::kNoSuchTable,
                              Advice::kStop,
                              {},
                              "this database has no consumer's tables: outbox migrate --db URL "
                              "--only consumer makes them"});
    }

    static Result<ReceivedMessages> find(ConsumerPlace& place, const std::string& id) {
        place.operations.reset();  // its connection may be lost
        if (Status status = open(place); !status.ok()) return status;
        return place.operations->find(id);
    }

    static Result<Report> consumers_of(ConsumerPlace& place) {
        if (Status status = open(place); !status.ok()) return status;
        Report report;
        auto consumers = place.operations->consumers();
        if (!consumers.ok()) return let_be(place, consumers.error());
        report.consumers = std::move(*consumers);
        auto mailboxes = place.operations->mailboxes();
        if (!mailboxes.ok()) return let_be(place, mailboxes.error());
        report.mailboxes = std::move(*mailboxes);
        return report;
    }

    Result<ordered_json> tenants() {
        return look([&](Operations& operations) -> Result<ordered_json> {
            const auto paused = operations.paused_tenants();
            if (!paused.ok()) return paused.error();
            const auto backlogs = operations.tenant_backlogs();
            if (!backlogs.ok()) return backlogs.error();
            ordered_json list = ordered_json::array();
            for (const TopTenant& tenant :
                 top_tenants(*paused, *backlogs, config_.source.default_tenant)) {
                list.push_back(app::json_of(tenant));
            }
            return ordered_json{
                {"tenants", list}, {"paused", paused->size()}, {"more", backlogs->more}};
        });
    }

    // By a connection that stays open, as `look` has one.
    Result<ordered_json> replays() {
        if (history_ == nullptr || Clock::now() - history_since_ > kReopenAfter) {
            history_.reset();
            SourceConfig config = config_.source;
            config.tenants.clear();
            auto history = open_history(config);
            // No relay has served the table, so that nobody has replayed it.
            if (!history.ok() && history.error().code == ErrorCode::kConflict) {
                return ordered_json{{"replays", ordered_json::array()}};
            }
            if (!history.ok()) return history.error();
            history_ = std::move(*history);
            history_since_ = Clock::now();
        }
        const auto runs =
            replay::Runs(*history_, history_->table_name(), os_user()).list(kMaxReplays);
        if (!runs.ok()) {
            history_.reset();
            return runs.error();
        }
        ordered_json list = ordered_json::array();
        for (const replay::Run& run : *runs) {
            ordered_json one = app::json_of(run);
            ordered_json& refusals = one["refusals"];
            while (refusals.size() > kRefusalsOfReplay) refusals.erase(refusals.size() - 1);
            list.push_back(std::move(one));
        }
        return ordered_json{{"replays", list}};
    }

    Result<ordered_json> audit(const Question& question) {
        const auto before = number_of(question, "before");
        if (!before.ok()) return before.error();
        return look([&](Operations& operations) -> Result<ordered_json> {
            const auto lines = operations.audit_lines(*before, kAuditOnPage + 1);
            if (!lines.ok()) return lines.error();
            ordered_json list = ordered_json::array();
            for (const AuditLine& line : *lines) {
                if (list.size() < kAuditOnPage) list.push_back(json_of(line));
            }
            const bool more = lines->size() > kAuditOnPage;
            return ordered_json{{"lines", list},
                                {"next", more ? list.back()["audit_id"] : ordered_json()}};
        });
    }

    const DeskConfig config_;
    ReportReader reader_;
    std::vector<ConsumerPlace> consumers_;
    std::string table_;  // as the database names it; empty: not known yet
    std::unique_ptr<Operations> looking_;
    Clock::time_point looking_since_;
    std::unique_ptr<replay::History> history_;
    Clock::time_point history_since_;
    std::optional<ordered_json> overview_;
    Clock::time_point overview_at_;
    Clock::time_point opened_at_ = Clock::now();
};

}  // namespace

dashboard::Desk make_desk(DeskConfig config) {
    // A std::function is copyable, and its copies are one desk.
    const auto state = std::make_shared<DeskState>(std::move(config));
    return [state](const Question& question) { return state->answer(question); };
}

}  // namespace outbox::app
