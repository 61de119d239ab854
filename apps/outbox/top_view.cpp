#include "top_view.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "columns.h"
#include "core/redact.h"
#include "core/utf8.h"
#include "print.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;

constexpr double kRateWindowS = 5;
constexpr std::size_t kMostNameColumns = 32;
constexpr std::size_t kMostKeyColumns = 48;
constexpr std::size_t kLeastKeyLines = 3;  // heading included, where routes need all the room
constexpr std::int64_t kWarnBacklog = 1'000;
constexpr double kWarnOldestS = 5;

std::string clock_text(std::int64_t at_us) {
    const std::string text = time_text(at_us);
    return text.empty() ? text : text.substr(11, 8) + "Z";
}

std::string rate_text(double per_s) {
    if (per_s > 0 && per_s < 10) return fmt::format("{:.1f}", per_s);
    return with_commas(std::llround(per_s));
}

std::string since(std::int64_t at_us, std::int64_t now_us) {
    if (at_us == 0) return "-";
    return age_text(std::max(0.0, static_cast<double>(now_us - at_us) / 1e6));
}

std::string until(std::int64_t at_us, std::int64_t now_us) {
    if (at_us == 0) return "-";
    return at_us <= now_us ? "now" : age_text(static_cast<double>(at_us - now_us) / 1e6);
}

std::string error_of(const RouteInfo& route, std::int64_t now_us) {
    if (route.last_error.empty()) return {};
    const std::string text = to_printable(redact(route.last_error));
    return route.last_error_at_us == 0 ? text
                                       : since(route.last_error_at_us, now_us) + " ago: " + text;
}

std::string circuit_of(const RouteInfo& route) {
    if (route.retired) return "retired";
    return route.circuit.empty() ? "-" : to_printable(route.circuit);
}

double total_rate(const TopSample& sample) {
    double rate = 0;
    for (const RouteInfo& route : sample.routes) rate += route.rate_per_s;
    return rate;
}

std::int64_t sum_of(const TopSample& sample, std::int64_t RouteInfo::* figure) {
    std::int64_t sum = 0;
    for (const RouteInfo& route : sample.routes) sum += route.*figure;
    return sum;
}

std::optional<Colour> where(bool bad, Colour colour) {
    return bad ? std::optional(colour) : std::nullopt;
}

std::vector<Span> summary_of(const TopSample& sample) {
    std::vector<Span> items;
    if (sample.leases.empty()) items.push_back({"no relay leads", Colour::kYellow});
    for (const LeaseInfo& lease : sample.leases) {
        if (lease.held) {
            items.push_back({"relay " + to_printable(lease.owner), Colour::kGreen});
        } else if (lease.tenants.empty()) {
            items.push_back({"no relay leads", Colour::kYellow});
        } else {
            items.push_back({"no relay leads for " + to_printable(lease.tenants.front()) +
                                 (lease.tenants.size() > 1 ? ", …" : ""),
                             Colour::kYellow});
        }
    }
    if (!sample.standbys.empty()) {
        items.push_back({std::to_string(sample.standbys.size()) + " standby"});
    }
    items.push_back({"backlog " + with_commas(sample.backlog),
                     where(sample.backlog > kWarnBacklog, Colour::kYellow)});
    if (sample.backlog > 0) {
        items.push_back({"oldest " + age_text(sample.oldest_age_s),
                         where(sample.oldest_age_s > kWarnOldestS, Colour::kYellow)});
    }
    items.push_back({rate_text(total_rate(sample)) + "/s"});
    const std::int64_t failing = sum_of(sample, &RouteInfo::failing);
    items.push_back({"failing " + with_commas(failing), where(failing > 0, Colour::kYellow)});
    const std::int64_t dead = sum_of(sample, &RouteInfo::dead);
    items.push_back({"dead " + with_commas(dead), where(dead > 0, Colour::kRed)});
    if (sample.scheduled > 0) items.push_back({"scheduled " + with_commas(sample.scheduled)});
    if (sample.owed > 0) items.push_back({"owed " + with_commas(sample.owed), Colour::kYellow});
    return items;
}

std::vector<Line> head_of(const TopState& state, std::size_t columns) {
    std::vector<Line> lines;
    const std::string source = to_printable(state.sample.source);
    const std::string clock = clock_text(state.now_us);
    Line title{{source, Colour::kBold}};
    if (width_of_text(source) + 2 + clock.size() <= columns) {
        title.push_back({std::string(columns - width_of_text(source) - clock.size(), ' ')});
        title.push_back({clock});
    }
    lines.push_back(std::move(title));
    if (!state.away.empty()) {
        lines.push_back({{"AWAY: " + to_printable(redact(state.away)), Colour::kRed}});
        lines.push_back({{"figures " + age_text(state.age_s) + " old", Colour::kRed}});
    }
    if (!state.sample.remark.empty()) {
        lines.push_back({{"the ledgers are of another table: outbox status", Colour::kYellow}});
    }
    Line line;
    for (Span& item : summary_of(state.sample)) {
        const std::size_t gap = line.empty() ? 0 : 2;
        if (!line.empty() && width_of_line(line) + gap + width_of_text(item.text) > columns) {
            lines.push_back(std::exchange(line, {}));
        } else if (!line.empty()) {
            line.push_back({"  "});
        }
        line.push_back(std::move(item));
    }
    lines.push_back(std::move(line));
    return lines;
}

std::vector<Line> routes_of(const TopState& state, std::size_t columns) {
    constexpr const char* kError = "LAST ERROR";
    constexpr std::size_t kLeastErrorColumns = 30;  // else it has a line of its own
    std::vector<Column> table{
        {.heading = "ROUTE",
         .rank = 0,
         .least = std::max<std::size_t>(6, columns / 4),
         .most = kMostNameColumns},
        {.heading = "PER S", .right = true, .rank = 1},
        {.heading = "CIRCUIT", .rank = 2, .least = columns < kNarrow ? 6U : 0U},
        {.heading = "PUBLISHED", .right = true, .rank = 5},
        {.heading = "FAILING", .right = true, .rank = 4},
        {.heading = "DEAD", .right = true, .rank = 3},
        {.heading = kError, .rank = 6, .least = kLeastErrorColumns},
    };
    std::vector<std::string> errors;
    for (const RouteInfo& route : state.sample.routes) {
        errors.push_back(error_of(route, state.now_us));
        const bool open = !route.circuit.empty() && route.circuit != "closed" && !route.retired;
        std::size_t at = 0;
        const auto add = [&](std::string text, std::optional<Colour> colour = {}) {
            table[at++].cells.push_back({std::move(text), colour});
        };
        add(to_printable(route.name));
        add(rate_text(route.rate_per_s));
        add(circuit_of(route), where(open, Colour::kRed));
        add(with_commas(route.published_total));
        add(with_commas(route.failing), where(route.failing > 0, Colour::kYellow));
        add(with_commas(route.dead), where(route.dead > 0, Colour::kRed));
        add(errors.back());
    }
    std::vector<Line> lines;
    if (state.sample.routes.empty()) return lines;
    const Columns shown(std::move(table), columns);
    lines.push_back(shown.heading());
    for (std::size_t i = 0; i < errors.size(); ++i) {
        lines.push_back(shown.row(i));
        if (!shown.shows(kError) && !errors[i].empty()) lines.push_back({{"  " + errors[i]}});
    }
    return lines;
}

std::vector<Line> keys_of(const TopState& state, std::size_t columns) {
    std::vector<Column> table{
        {.heading = "KEY",
         .rank = 0,
         .least = std::max<std::size_t>(8, columns / 4),
         .most = kMostKeyColumns},
        {.heading = "FAILS FOR", .right = true, .rank = 1},
        {.heading = "TRIES", .right = true, .rank = 2},
        {.heading = "NEXT", .right = true, .rank = 5},
        {.heading = "ROUTE", .rank = 4, .least = 6, .most = kMostNameColumns},
        {.heading = "ERROR", .rank = 3, .least = 10},
    };
    std::vector<Line> lines;
    if (state.sample.keys.empty()) return lines;
    for (const WaitingEvent& key : state.sample.keys) {
        table[0].cells.push_back({to_printable(key.key.empty() ? "event " + key.id : key.key)});
        table[1].cells.push_back({since(key.first_failed_at_us, state.now_us)});
        table[2].cells.push_back({with_commas(key.attempts)});
        table[3].cells.push_back({until(key.next_attempt_at_us, state.now_us)});
        table[4].cells.push_back({to_printable(key.route)});
        table[5].cells.push_back({to_printable(key.error_code + ": " + redact(key.error))});
    }
    const Columns shown(std::move(table), columns);
    lines.push_back(shown.heading());
    for (std::size_t i = 0; i < state.sample.keys.size(); ++i) lines.push_back(shown.row(i));
    return lines;
}

std::vector<Line> tenants_of(const TopState& state, std::size_t columns) {
    std::vector<Column> table{
        {.heading = "TENANT",
         .rank = 0,
         .least = std::max<std::size_t>(6, columns / 4),
         .most = kMostNameColumns},
        {.heading = "WAITING", .right = true, .rank = 1},
        {.heading = "PAUSED FOR", .right = true, .rank = 2},
        {.heading = "BY, AND WHY", .rank = 3, .least = 10},
    };
    std::vector<Line> lines;
    const TopSample& sample = state.sample;
    if (sample.tenants.empty()) return lines;
    for (const TopTenant& tenant : sample.tenants) {
        const bool paused = !tenant.paused_by.empty();
        table[0].cells.push_back({to_printable(tenant.name)});
        table[1].cells.push_back(
            {with_commas(tenant.waiting) + (sample.tenants_are_more ? "+" : "")});
        table[2].cells.push_back({paused ? since(tenant.paused_since_us, state.now_us) : "",
                                  where(paused, Colour::kYellow)});
        table[3].cells.push_back(
            {paused ? to_printable(tenant.paused_by + ": " + tenant.reason) : ""});
    }
    const Columns shown(std::move(table), columns);
    lines.push_back(shown.heading());
    for (std::size_t i = 0; i < sample.tenants.size(); ++i) lines.push_back(shown.row(i));
    return lines;
}

// The first of them, and a sign that there are more.
void append_first(const std::vector<Line>& from, std::size_t room, std::vector<Line>& out) {
    if (from.size() <= room) {
        out.insert(out.end(), from.begin(), from.end());
        return;
    }
    if (room == 0) return;
    out.insert(out.end(), from.begin(), from.begin() + static_cast<std::ptrdiff_t>(room - 1));
    out.push_back({{"… " + std::to_string(from.size() - room + 1) + " more lines"}});
}

// --- Lines for programs

std::string field(std::string_view name, const std::string& value) {
    const bool plain =
        !value.empty() && value.find_first_not_of(
                              "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                              "._:/@+-") == std::string::npos;
    return " " + std::string(name) + "=" +
           (plain ? value
                  : ordered_json(to_printable(value))
                        .dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

std::string second_of(std::int64_t at_us) {
    const std::string text = time_text(at_us);
    return text.empty() ? text : text.substr(0, 19) + "Z";
}

ordered_json json_of(const RouteInfo& route) {
    return {{"name", route.name},
            {"rate_per_s", route.rate_per_s},
            {"published_total", route.published_total},
            {"failing", route.failing},
            {"dead", route.dead},
            {"circuit", text_or_null(route.circuit)},
            {"retired", route.retired},
            {"last_error", text_or_null(redact(route.last_error))},
            {"last_error_at", text_or_null(time_text(route.last_error_at_us))}};
}

ordered_json json_of(const WaitingEvent& key) {
    return {{"key", text_or_null(key.key)},
            {"event_id", key.id},
            {"route", key.route},
            {"attempts", key.attempts},
            {"first_failed_at", text_or_null(time_text(key.first_failed_at_us))},
            {"next_attempt_at", text_or_null(time_text(key.next_attempt_at_us))},
            {"error_code", key.error_code},
            {"error", redact(key.error)}};
}

}  // namespace

ordered_json json_of(const TopTenant& tenant) {
    return {{"tenant", tenant.name},
            {"waiting", tenant.waiting},
            {"paused", !tenant.paused_by.empty()},
            {"since", text_or_null(time_text(tenant.paused_since_us))},
            {"who", text_or_null(tenant.paused_by)},
            {"reason", text_or_null(tenant.reason)}};
}

std::vector<TopTenant> top_tenants(const std::vector<PausedTenant>& paused,
                                   const TenantBacklogs& backlogs,
                                   const std::string& default_tenant) {
    std::map<std::string, std::int64_t> waiting;
    for (const auto& one : backlogs.tenants) waiting[one.tenant_id] = one.waiting;
    std::vector<TopTenant> out;
    for (const PausedTenant& one : paused) {
        const auto found = waiting.find(one.tenant_id);
        out.push_back({one.tenant_id, found == waiting.end() ? 0 : found->second, one.who,
                       one.reason, one.since_us});
        if (found != waiting.end()) waiting.erase(found);
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const TopTenant& a, const TopTenant& b) { return a.waiting > b.waiting; });
    out.resize(std::min(out.size(), kMaxTopTenants));
    const bool others =
        !waiting.empty() && (waiting.size() > 1 || !waiting.contains(default_tenant));
    if (out.empty() && !others) return out;
    std::size_t more = 0;
    for (const auto& one : backlogs.tenants) {
        if (more == kMaxTopTenants) break;
        if (!waiting.contains(one.tenant_id)) continue;
        out.push_back({one.tenant_id, one.waiting});
        ++more;
    }
    return out;
}

void TopRates::measure(double now_s, std::vector<RouteInfo>& routes) {
    std::map<std::string, std::deque<Point>> kept;
    for (RouteInfo& route : routes) {
        std::deque<Point> points = std::move(seen_[route.name]);
        if (!points.empty() && points.back().total > route.published_total) points.clear();
        // The last one that is old enough stays, so that looks further apart have a rate, too.
        while (points.size() > 1 && points[1].at_s <= now_s - kRateWindowS) points.pop_front();
        if (!points.empty() && now_s > points.front().at_s) {
            route.rate_per_s = static_cast<double>(route.published_total - points.front().total) /
                               (now_s - points.front().at_s);
        }
        points.push_back({now_s, route.published_total});
        kept[route.name] = std::move(points);
    }
    seen_ = std::move(kept);
}

std::vector<std::string> top_screen(const TopState& state, std::size_t columns, std::size_t rows,
                                    bool colours) {
    std::vector<Line> lines = head_of(state, columns);
    if (lines.size() > rows) lines.resize(rows);
    const std::vector<Line> routes = routes_of(state, columns);
    std::vector<Line> keys = keys_of(state, columns);
    // They share what the routes leave.
    if (const std::vector<Line> tenants = tenants_of(state, columns); !tenants.empty()) {
        if (!keys.empty()) keys.emplace_back();
        keys.insert(keys.end(), tenants.begin(), tenants.end());
    }
    const std::size_t blanks = (routes.empty() ? 0 : 1) + (keys.empty() ? 0 : 1);
    const std::size_t room = rows - lines.size() - std::min(rows - lines.size(), blanks);
    const std::size_t for_keys =
        std::min(keys.size(),
                 std::max(room - std::min(room, routes.size()), std::min(kLeastKeyLines, room)));
    if (!routes.empty() && room > for_keys) {
        lines.emplace_back();
        append_first(routes, room - for_keys, lines);
    }
    if (!keys.empty() && for_keys > 0) {
        lines.emplace_back();
        append_first(keys, for_keys, lines);
    }
    std::vector<std::string> out;
    for (const Line& line : lines) out.push_back(render(line, columns, colours));
    return out;
}

// Of the relays that have the route (empty: any), each for tenants of its own.
std::string leaders_of(const TopSample& sample, const std::string& route) {
    std::string owners;
    for (const LeaseInfo& lease : sample.leases) {
        const bool has =
            route.empty() || lease.routes.empty() ||
            std::find(lease.routes.begin(), lease.routes.end(), route) != lease.routes.end();
        if (lease.held && has) owners += (owners.empty() ? "" : ",") + lease.owner;
    }
    return owners;
}

std::vector<std::string> top_lines(const TopState& state) {
    const TopSample& sample = state.sample;
    const std::string begin = "time=" + second_of(state.now_us) + field("source", sample.source);
    if (!state.away.empty()) {
        return {begin + fmt::format(" age_s={:.0f}", state.age_s) +
                field("error", redact(state.away))};
    }
    const std::string of_table =
        fmt::format(" backlog={} oldest_s={:.1f}", sample.backlog, sample.oldest_age_s);
    const std::string paused = fmt::format(" tenants_paused={}", sample.paused) +
                               (sample.remark.empty() ? "" : field("remark", sample.remark));
    std::vector<std::string> lines;
    for (const RouteInfo& route : sample.routes) {
        lines.push_back(begin + field("route", route.name) +
                        fmt::format(" rate_per_s={:.1f} published_total={} failing={} dead={}",
                                    route.rate_per_s, route.published_total, route.failing,
                                    route.dead) +
                        field("circuit", circuit_of(route)) + of_table +
                        field("leader", leaders_of(sample, route.name)) + paused +
                        field("last_error", redact(route.last_error)));
    }
    if (lines.empty()) {
        lines.push_back(begin + field("route", "") + of_table +
                        field("leader", leaders_of(sample, "")) + paused);
    }
    return lines;
}

std::string top_json(const TopState& state) {
    const TopSample& sample = state.sample;
    ordered_json routes = ordered_json::array();
    for (const RouteInfo& route : sample.routes) routes.push_back(json_of(route));
    ordered_json keys = ordered_json::array();
    for (const WaitingEvent& key : sample.keys) keys.push_back(json_of(key));
    ordered_json tenants = ordered_json::array();
    for (const TopTenant& tenant : sample.tenants) tenants.push_back(json_of(tenant));
    ordered_json leaders = ordered_json::array();
    for (const LeaseInfo& lease : sample.leases) {
        leaders.push_back({{"owner", lease.held ? ordered_json(lease.owner) : ordered_json()},
                           {"epoch", lease.epoch},
                           {"tenants", lease.tenants},
                           {"routes", lease.routes}});
    }
    const LeaseInfo first = sample.leases.empty() ? LeaseInfo{} : sample.leases.front();
    const ordered_json whole{{"time", time_text(state.now_us)},
                             {"source", sample.source},
                             {"away", text_or_null(redact(state.away))},
                             {"age_s", state.age_s},
                             {"leader", first.held ? ordered_json(first.owner) : ordered_json()},
                             {"epoch", first.epoch},
                             {"leaders", leaders},
                             {"standbys", sample.standbys},
                             {"backlog", sample.backlog},
                             {"oldest_age_s", sample.oldest_age_s},
                             {"scheduled", sample.scheduled},
                             {"owed", sample.owed},
                             {"remark", text_or_null(sample.remark)},
                             {"rate_per_s", total_rate(sample)},
                             {"routes", std::move(routes)},
                             {"failing_keys", std::move(keys)},
                             {"tenants_paused", sample.paused},
                             {"tenants", std::move(tenants)},
                             {"tenants_are_more", sample.tenants_are_more}};
    return printable_json(whole.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

}  // namespace outbox::app
