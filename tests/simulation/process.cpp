#include "tests/simulation/process.h"

#include <memory>
#include <string>
#include <utility>

namespace outbox::simulation {

namespace {

constexpr std::int64_t kBootedAgoUs = 77 * kSecond;

}  // namespace

relay::RouteSpec route_spec(int route, const std::string& name, const Settings& settings) {
    relay::RouteSpec spec;
    spec.name = name;
    spec.predicate.aggregate_types =
        route == 0 ? std::vector<std::string>{"a", "b"} : std::vector<std::string>{"b"};
    spec.topics = *core::TopicRule::make("{aggregate_type}-events", {}, "events");
    if (settings.block_key && route + 1 == settings.routes) {
        spec.on_dead_letter = relay::OnDeadLetter::kBlockKey;
    }
    return spec;
}

RelayProcess::RelayProcess(const Surroundings& around, int number)
    : around_(around),
      world_(around.world),
      number_(number),
      clock_(world_, around.wall_offset_us, kBootedAgoUs * number),
      main_(world_.spawn(number, "relay-" + std::to_string(number), [this] { run(); })) {}

void RelayProcess::kill() {
    world_.trace("relay " + std::to_string(number_) + " is killed");
    if (world_.random().chance(0.3)) around_.vanish(number_, source_.get());
    world_.kill(number_);
}

std::vector<relay::RouteSpec> RelayProcess::routes() const {
    std::vector<relay::RouteSpec> routes;
    if (around_.routes) {
        routes = around_.routes();
    } else {
        for (int route = 0; route < around_.settings.routes; ++route) {
            routes.push_back(route_spec(route, route == 0 ? "first" : "second", around_.settings));
        }
    }
    for (relay::RouteSpec& spec : routes) {
        spec.make_sink = [this, route = around_.judge.route_of(spec.name)](
                             const std::string&) -> Result<std::unique_ptr<spi::Sink>> {
            if (around_.make_sink) return around_.make_sink(number_, route);
            return std::unique_ptr<spi::Sink>(std::make_unique<SimSink>(
                world_, around_.judge, around_.broker, around_.settings, number_, route));
        };
    }
    return routes;
}

void RelayProcess::run() {
    if (!open_source()) return;
    const std::shared_ptr<void> closes(nullptr, [this](void*) { source_.reset(); });
    relay::RelayOptions options = around_.settings.options;
    options.owner = "relay-" + std::to_string(number_);
    relay::Relay relay(*source_, routes(), options, clock_,
                       [this](const relay::Note& note) { tell(note); });
    const Status status = relay.run(stop_.get_token(), true);
    if (!status.ok()) stops(status.error());
}

// False: there is none.
bool RelayProcess::open_source() {
    while (!stop_.stop_requested()) {
        auto source = around_.open_source(number_);
        if (source.ok()) {
            source_ = *std::move(source);
            return true;
        }
        if (source.error().advice == Advice::kStop) {
            stops(source.error());
            return false;
        }
        world_.sleep(around_.settings.options.lease_retry_ms * kMs);
    }
    return false;
}

// As the program does.
void RelayProcess::stops(const ErrorInfo& why) {
    if (world_.dying()) return;
    world_.trace("relay " + std::to_string(number_) + " ends: " + describe(why));
    if (!around_.may_end || !around_.may_end(number_, why)) {
        around_.judge.violation("a relay stopped: " + describe(why));
    }
}

void RelayProcess::tell(const relay::Note& note) const {
    const bool same = around_.may_change && !around_.may_change();
    if (same && note.what == std::string_view("server_changed")) {
        around_.judge.violation("relay " + std::to_string(number_) +
                                " takes the database for another: " + note.fields.front().second);
    }
    if (!world_.tracing()) return;
    std::string line = "relay " + std::to_string(number_) + " " + note.what;
    for (const auto& [name, value] : note.fields) line.append(" " + name + "=" + value);
    world_.trace(line);
}

}  // namespace outbox::simulation
