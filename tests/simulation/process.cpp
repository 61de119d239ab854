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

// What the threads of one term share.
struct RelayProcess::Running {
    std::unique_ptr<relay::Term> term;
    bool over = false;
    bool draining = false;
    bool routes_done = false;
    bool recorder_done = false;
    std::int64_t drain_until_us = 0;
};

RelayProcess::RelayProcess(const Surroundings& around, int number)
    : around_(around),
      world_(around.world),
      judge_(around.judge),
      number_(number),
      clock_(world_, around.wall_offset_us, kBootedAgoUs * number),
      options_(around.settings.options),
      notify_([this](const relay::Note& note) {
          if (!world_.tracing()) return;
          std::string line = "relay " + std::to_string(number_) + " " + note.what;
          for (const auto& [name, value] : note.fields) line.append(" " + name + "=" + value);
          world_.trace(line);
      }) {
    options_.owner = "relay-" + std::to_string(number);
    if (around.routes) {
        routes_ = around.routes();
    } else {
        for (int route = 0; route < around.settings.routes; ++route) {
            routes_.push_back(route_spec(route, route == 0 ? "first" : "second", around.settings));
        }
    }
    for (relay::RouteSpec& spec : routes_) {
        spec.make_sink = [&around, number, route = around.judge.route_of(spec.name)](
                             const std::string&) -> Result<std::unique_ptr<spi::Sink>> {
            if (around.make_sink) return around.make_sink(number, route);
            return std::unique_ptr<spi::Sink>(std::make_unique<SimSink>(
                around.world, around.judge, around.broker, around.settings, number, route));
        };
        stats_.push_back(std::make_unique<relay::RouteStats>());
        told_.push_back(stats_.back().get());
    }
    main_ = world_.spawn(number, options_.owner, [this] { run(); });
}

void RelayProcess::kill() {
    world_.trace("relay " + std::to_string(number_) + " is killed");
    if (world_.random().chance(0.3)) around_.vanish(number_, source_.get());
    world_.kill(number_);
}

void RelayProcess::run() {
    while (!stopping_ && !source_) {
        auto source = around_.open_source(number_);
        if (source.ok()) {
            source_ = std::move(*source);
        } else if (source.error().advice == Advice::kStop) {
            stops(source.error());
        } else {
            world_.sleep(options_.lease_retry_ms * kMs);
        }
    }
    if (!source_) return;
    lease_.emplace(*source_, clock_, options_, view_);
    if (!around_.real) return hold_the_lease();
    const std::shared_ptr<void> closes(nullptr, [this](void*) {
        lease_.reset();
        source_.reset();
    });
    hold_the_lease();
}

void RelayProcess::hold_the_lease() {
    while (!stopping_) {
        const auto epoch = lease_->try_acquire();
        if (!epoch.ok() || !*epoch) {
            if (around_.real && !epoch.ok() && epoch.error().advice == Advice::kStop &&
                epoch.error().code != ErrorCode::kServerChanged) {
                stops(epoch.error());
            }
            world_.sleep(options_.lease_retry_ms * kMs);
            continue;
        }
        world_.trace("relay " + std::to_string(number_) + " has epoch " + std::to_string(**epoch));
        serve(**epoch);
    }
}

Result<std::unique_ptr<relay::Term>> RelayProcess::open(std::uint64_t epoch) {
    bool begun = false;
    const auto open_now = [&] {
        return relay::Term::open(
            {*source_, routes_, told_, options_, clock_, view_, notify_, epoch});
    };
    if (!around_.real) return open_now();
    const World::TaskId keeping = world_.spawn(number_, options_.owner + " keeper", [&] {
        for (bool kept = true; kept && !begun;) {
            const auto renewed = lease_->keep();
            kept = renewed.ok() ? *renewed : view_.valid(clock_.boot_us());
            world_.sleep(20 * kMs);
        }
    });
    auto opened = open_now();
    begun = true;
    while (!world_.ended(keeping)) world_.sleep(kMs);
    return opened;
}

void RelayProcess::cannot_open(const ErrorInfo& why) {
    world_.trace("relay " + std::to_string(number_) + " cannot begin: " + describe(why));
    const bool goes_on = why.code == ErrorCode::kLeaseLost || why.code == ErrorCode::kServerChanged;
    if (around_.real && !goes_on && why.advice == Advice::kStop) stops(why);
    world_.sleep(options_.lease_retry_ms * kMs);
}

// The process ends, as the program does.
void RelayProcess::stops(const ErrorInfo& why) {
    world_.trace("relay " + std::to_string(number_) + " ends: " + describe(why));
    if (!around_.may_end || !around_.may_end(why)) {
        judge_.violation("a relay stopped: " + describe(why));
    }
    stopping_ = true;
}

void RelayProcess::serve(std::uint64_t epoch) {
    auto opened = open(epoch);
    if (!opened.ok()) {
        lease_->release();
        cannot_open(opened.error());
        return;
    }
    Running running;
    running.term = std::move(*opened);
    std::vector<World::TaskId> tasks;
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        tasks.push_back(world_.spawn(number_, options_.owner + " route " + std::to_string(route),
                                     [this, &running, route] { turn_route(running, route); }));
    }
    const World::TaskId recorder =
        world_.spawn(number_, options_.owner + " recorder", [&] { turn_recorder(running); });
    const World::TaskId remover =
        world_.spawn(number_, options_.owner + " remover", [&] { turn_remover(running); });
    const World::TaskId housekeeper =
        world_.spawn(number_, options_.owner + " housekeeper", [&] { turn_housekeeper(running); });
    bool kept = true;
    while (kept && !stopping_ && !running.over) {
        const auto renewed = lease_->keep();
        kept = renewed.ok() ? *renewed : view_.valid(clock_.boot_us());
        world_.sleep(20 * kMs);
    }
    if (!kept) view_.end();
    world_.trace("relay " + std::to_string(number_) + " ends its term");
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        running.term->pipeline(route).drain();
    }
    running.drain_until_us =
        world_.now_us() + (stopping_ ? options_.shutdown_grace_ms : std::int64_t{200}) * kMs;
    running.draining = true;
    for (const World::TaskId task : tasks) {
        while (!world_.ended(task)) world_.sleep(kMs);
    }
    running.routes_done = true;
    while (!world_.ended(recorder)) world_.sleep(kMs);
    running.recorder_done = true;
    while (!world_.ended(remover) || !world_.ended(housekeeper)) world_.sleep(kMs);
    running.term.reset();
    if (kept) lease_->release();
}

void RelayProcess::turn_route(Running& running, std::size_t route) {
    relay::Pipeline& pipeline = running.term->pipeline(route);
    while (true) {
        if (const Status status = pipeline.step(); !status.ok()) {
            ended_by(running, status);
            return;
        }
        if (running.draining && (pipeline.drained() || world_.now_us() >= running.drain_until_us)) {
            return;
        }
    }
}

void RelayProcess::turn_recorder(Running& running) {
    relay::RecordKeeper& keeper = running.term->keeper();
    const std::int64_t most_us = options_.record_interval_ms * kMs;
    turn(
        running, running.routes_done, most_us,
        [&] { return keeper.turn(std::chrono::milliseconds(0)); }, [&] { return keeper.idle(); });
}

void RelayProcess::turn_remover(Running& running) {
    relay::Remover& remover = running.term->remover();
    turn(
        running, running.recorder_done, 100 * kMs,
        [&] { return remover.turn(std::chrono::milliseconds(0)); },
        [&] { return remover.idle() || world_.now_us() >= running.drain_until_us; });
}

void RelayProcess::turn_housekeeper(Running& running) {
    turn(
        running, running.draining, 20 * kMs, [&] { return running.term->housekeeper().turn(); },
        [] { return true; });
}

// One of the term's threads but a route's: turns until what hands it work has ended and it is done.
void RelayProcess::turn(Running& running, const bool& ending, std::int64_t most_us,
                        const std::function<Status()>& one_turn,
                        const std::function<bool()>& done) {
    while (true) {
        const bool last = ending;
        const Status status = one_turn();
        if (status.ok()) {
            if (last && done()) return;
            world_.sleep(last ? kMs : world_.random().between(10, most_us));
            continue;
        }
        if (status.error().advice == Advice::kStop) {
            ended_by(running, status);
            return;
        }
        if (last && world_.now_us() >= running.drain_until_us) return;
        world_.sleep(100 * kMs);
    }
}

void RelayProcess::ended_by(Running& running, const Status& why) {
    world_.trace("relay " + std::to_string(number_) + " stops: " + describe(why.error()));
    running.over = true;
    if (why.error().code != ErrorCode::kLeaseLost &&
        why.error().code != ErrorCode::kServerChanged) {
        stops(why.error());
    }
}

}  // namespace outbox::simulation
