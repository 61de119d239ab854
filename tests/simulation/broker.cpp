#include "tests/simulation/broker.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace outbox::simulation {

namespace {

constexpr std::size_t kCapacity = 40;

/// A record's token, kept with copies of what its views show.
struct Handed {
    spi::Record record;
    std::string id;
    std::string key;
    Position position = 0;
    bool doomed = false;  // lies behind a failed record
    Kept kept;            // where it is kept
};

struct Outcome {
    std::uint64_t token = 0;
    std::string key;
    Position position = 0;
    std::optional<spi::FailedRecord> failure;
    std::int64_t known_at_us = 0;
};

std::optional<std::string> text_of(std::string_view view) {
    if (view.data() == nullptr) return std::nullopt;
    return std::string(view);
}

Kept kept_of(const spi::Record& record) {
    Kept kept{std::string(record.id),
              std::string(record.topic),
              text_of(record.key),
              text_of(record.value),
              {}};
    for (const spi::HeaderView& header : record.headers) {
        kept.headers.emplace_back(header.name, header.value);
    }
    return kept;
}

ErrorInfo error(ErrorCode code, Advice advice, const char* message) {
    return {code, advice, {}, message};
}

}  // namespace

struct SimSink::Session {
    Session(World& w, Judge& j, Broker& b, const Settings& s, int session_route)
        : world(w), judge(j), broker(b), settings(s), route(session_route) {
        number = ++broker.sessions;
    }

    void run();
    void decide(std::size_t index);
    void refuse(std::size_t index, const SimEvent& event);
    void fail(std::size_t index, ErrorInfo info, bool suspect = false, bool behind = false,
              std::string part = {});
    void doom_behind(const std::string& key);
    void fail_all(const ErrorInfo& info);
    void answer(const Handed& handed, std::optional<spi::FailedRecord> failure);
    void check_views(const Handed& handed) {
        if (handed.record.id != handed.id ||
            (!handed.key.empty() && handed.record.key != handed.key))
            judge.violation("the bytes of a record under way changed");
    }

    World& world;
    Judge& judge;
    Broker& broker;
    const Settings& settings;
    int route;
    int number = 0;
    World::TaskId task = 0;
    World::TaskId poller = 0;
    bool closed = false;
    std::deque<Handed> queue;
    std::vector<Outcome> outcomes;
    std::map<std::string, int> untold;  // failures by key that `poll` has not told yet
};

SimSink::SimSink(World& world, Judge& judge, Broker& broker, const Settings& settings, int relay,
                 int route)
    : world_(world),
      judge_(judge),
      broker_(broker),
      relay_(relay),
      route_(route),
      capabilities_{"simulated", spi::Guarantee::kAtLeastOnce, settings.fail_stop, true},
      session_(std::make_shared<Session>(world, judge, broker, settings, route)) {
    session_->task = world.spawn(World::kNoGroup, "session " + std::to_string(session_->number),
                                 [session = session_] { session->run(); });
}

SimSink::~SimSink() {
    for (const Handed& handed : session_->queue) session_->check_views(handed);
    // Some of it is on the wire and will still arrive, in order.
    session_->closed = true;
    const auto arrives = world_.random().index(session_->queue.size() + 1);
    session_->queue.resize(arrives);
    judge_.session_ended(session_->number);
    world_.wake(session_->task);
}

Status SimSink::check() {
    world_.sleep(world_.random().between(100, 5'000));
    if (world_.now_us() < broker_.away_until_us[route_]) {
        return error(ErrorCode::kSinkUnavailable, Advice::kRetryDestination, "away");
    }
    return {};
}

bool SimSink::publish(const spi::Record& record) {
    Session& session = *session_;
    if (session.queue.size() >= kCapacity) return false;
    Handed handed;
    handed.record = record;
    handed.id = record.id;
    if (record.key.data() != nullptr) handed.key = record.key;
    handed.position = number_of(handed.id);
    if (broker_.sees) broker_.sees(handed.position);
    if (broker_.keeps) handed.kept = kept_of(record);
    handed.doomed = session.untold.contains(handed.key) && !handed.key.empty();
    judge_.published(relay_, session.number, route_, handed.position);
    if (world_.tracing()) {
        world_.trace("relay " + std::to_string(relay_) + " session " +
                     std::to_string(session.number) + " route " + std::to_string(route_) +
                     " sends e" + std::to_string(number_of(handed.id)) + " key=" + handed.key);
    }
    if (session.settings.fault == Fault::kEarlyAcknowledgement) {
        session.outcomes.push_back({record.token, handed.key, handed.position, {}, 0});
    }
    session.queue.push_back(std::move(handed));
    world_.wake(session.task);
    return true;
}

void SimSink::poll(std::chrono::milliseconds max_wait, spi::Completions& out) {
    Session& session = *session_;
    session.poller = world_.current();
    const std::int64_t until_us =
        world_.now_us() + max_wait.count() * kMs + world_.random().between(1, 50);
    while (true) {
        std::int64_t next_us = until_us;
        std::erase_if(session.outcomes, [&](Outcome& outcome) {
            if (outcome.known_at_us > world_.now_us()) {
                next_us = std::min(next_us, outcome.known_at_us);
                return false;
            }
            if (!outcome.failure) {
                out.acknowledged.push_back(outcome.token);
                return true;
            }
            const auto untold = session.untold.find(outcome.key);
            if (untold != session.untold.end() && --untold->second == 0) {
                session.untold.erase(untold);
            }
            out.failed.push_back(std::move(*outcome.failure));
            return true;
        });
        if (!out.empty() || world_.now_us() >= until_us) return;
        world_.sleep_until(next_us);
    }
}

void SimSink::Session::run() {
    Random& random = world.random();
    while (!closed || !queue.empty()) {
        if (queue.empty()) {
            world.sleep_until(kNever);
            continue;
        }
        world.sleep(random.between(100, 3'000));
        const std::int64_t away_us = broker.away_until_us[route];
        if (world.now_us() < away_us) {
            if (broker.away_fails && random.chance(0.3)) {
                fail_all(error(ErrorCode::kSinkUnavailable, Advice::kRetryDestination, "away"));
            } else {
                world.sleep_until(std::min(away_us, world.now_us() + 100 * kMs));
            }
            continue;
        }
        for (auto n = random.between(1, 8); n > 0 && !queue.empty(); --n) {
            // Without an order of its own the destination takes them as they come.
            decide(settings.fail_stop ? 0 : random.index(queue.size()));
        }
    }
    judge.session_ended(number);
}

void SimSink::Session::decide(std::size_t index) {
    Handed& handed = queue[index];
    if (!closed) check_views(handed);
    Random& random = world.random();
    const SimEvent* event = judge.find(handed.position);
    if (event == nullptr) {
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(index));
        return;
    }
    if (handed.doomed && settings.fault != Fault::kGapAfterFailure) {
        fail(index, error(ErrorCode::kSinkRebuilt, Advice::kRetryDestination, "behind"), false,
             random.chance(0.7));
    } else if (const int part = part_of(*event);
               world.now_us() < broker.part_away_until_us[{route, part}]) {
        judge.waits_for_part(number, part);
        fail(index, error(ErrorCode::kTopicUnknown, Advice::kRetryDestination, "no leader"), false,
             false, "topic a[" + std::to_string(part) + "]");
    } else if (event->trouble != Trouble::kNone && !judge.is_mended(event->position) &&
               (event->trouble != Trouble::kFailsTwice ||
                judge.refused(route, event->position) < 2)) {
        refuse(index, *event);
    } else if (random.chance(settings.record_lost)) {
        judge.unanswered(route, handed.position);
        fail(index, error(ErrorCode::kSinkTimeout, Advice::kRetryDestination, "no answer"));
    } else {
        world.trace("session " + std::to_string(number) + " accepted " + handed.id + " route " +
                    std::to_string(route));
        judge.accepted(route, handed.position);
        if (broker.keeps) broker.keeps(handed.kept);
        if (random.chance(settings.outcome_unknown)) {
            judge.unanswered(route, handed.position);
            fail(index, error(ErrorCode::kSinkTimeout, Advice::kRetryDestination, "answer lost"));
        } else {
            answer(handed, std::nullopt);
            queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(index));
        }
    }
}

void SimSink::Session::refuse(std::size_t index, const SimEvent& event) {
    if (settings.fault == Fault::kRefusalHoldsUpAll) {
        broker.away_until_us[route] = world.now_us() + 20 * kSecond;
    }
    switch (event.trouble) {
        case Trouble::kTimesOut:
            fail(index, error(ErrorCode::kSinkTimeout, Advice::kRetryDestination, "no answer"));
            break;
        case Trouble::kFailsTwice:
        case Trouble::kFailsAlways:
            fail(index, error(ErrorCode::kRecordRefused, Advice::kRetryEvent, "not now"));
            break;
        default: {
            const bool alone = queue.size() == 1;
            fail(index, error(ErrorCode::kRecordRefused, Advice::kDeadLetter, "never"),
                 settings.suspects && !alone);
            if (settings.rebuilds) {
                fail_all(error(ErrorCode::kSinkRebuilt, Advice::kRetryDestination, "rebuilt"));
            }
        }
    }
}

void SimSink::Session::fail(std::size_t index, ErrorInfo info, bool suspect, bool behind,
                            std::string part) {
    const Handed handed = std::move(queue[index]);
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(index));
    judge.failed(route, handed.position);
    // It leaves the window, where its tenant is paused for good.
    if (!judge.is_accepted(route, handed.position)) judge.not_accepted(number, handed.position);
    world.trace("session " + std::to_string(number) + " failed " + handed.id + ": " + info.message +
                (suspect ? " suspect" : "") + (behind ? " behind" : ""));
    if (!handed.key.empty()) {
        ++untold[handed.key];
        for (Handed& later : queue) later.doomed = later.doomed || later.key == handed.key;
    }
    answer(handed, spi::FailedRecord{handed.record.token, std::move(info), suspect, behind,
                                     std::move(part)});
}

void SimSink::Session::fail_all(const ErrorInfo& info) {
    while (!queue.empty()) fail(0, info);
}

void SimSink::Session::answer(const Handed& handed, std::optional<spi::FailedRecord> failure) {
    if (closed || settings.fault == Fault::kEarlyAcknowledgement) return;
    Random& random = world.random();
    const std::int64_t late_us = random.chance(0.05) ? random.between(0, 500) * kMs : 0;
    outcomes.push_back({handed.record.token, handed.key, handed.position, std::move(failure),
                        world.now_us() + late_us});
    world.wake(poller);
}

}  // namespace outbox::simulation
