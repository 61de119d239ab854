#include "tests/simulation/postgres/receiver.h"

#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include <outbox/error.h>

#include "adapters/appliers.h"
#include "consumer/queue/consumer.h"
#include "databases/postgres/receive/broker_store.h"
#include "databases/postgres/receive/mailbox.h"
#include "mailbox/loop.h"

namespace outbox::simulation {

namespace {

constexpr std::int64_t kBootedAgoUs = 31 * kSecond;

struct Clear {
    void operator()(PGresult* result) const { PQclear(result); }
};
using Result = std::unique_ptr<PGresult, Clear>;

// As handlers do: what fails is thrown.
void must(PGconn* connection, const std::string& sql) {
    const Result result(PQexec(connection, sql.c_str()));
    if (PQresultStatus(result.get()) == PGRES_COMMAND_OK) return;
    throw std::runtime_error(PQerrorMessage(connection));
}

}  // namespace

Receiver::Receiver(const ReceiversSurroundings& around, int number)
    : around_(around),
      world_(around.world),
      number_(number),
      clock_(world_, around.wall_offset_us, kBootedAgoUs * number) {
    main_ = world_.spawn(number, "member " + std::to_string(number), [this] { run(); });
}

void Receiver::stop() {
    if (stop_) stop_();
}

void Receiver::run() {
    std::optional<ErrorInfo> why;
    try {
        if (around_.queue == nullptr) {
            take_from_mailbox();
        } else {
            take_from_queue();
        }
    } catch (const Error& error) {
        why = error.info();
    }
    if (!why) return;
    world_.trace("member " + std::to_string(number_) + " ends: " + describe(*why));
    if (why->advice == Advice::kStop) {
        around_.judge.violation("a member stopped: " + describe(*why));
    }
}

void Receiver::take_from_mailbox() {
    MailboxOptions options = around_.options;
    options.on_report = [this](const ConsumerReport& report) { tell(report); };
    auto store = std::make_unique<consumer::LibpqMailbox>(around_.url, options, clock_);
    const consumer::LibpqMailbox& session = *store;
    consumer::MailboxLoop loop(
        std::move(store),
        [this, &session](std::span<const Message> messages) {
            handle(session.connection(), messages);
        },
        options, consumer::Env{clock_, world_.random().bits()});
    stop_ = [&loop] { loop.stop(); };
    const std::shared_ptr<void> gone(nullptr, [this](void*) { stop_ = nullptr; });
    loop.run();
}

void Receiver::take_from_queue() {
    QueueConsumerOptions options = around_.queue_options;
    options.on_report = [this](const ConsumerReport& report) { tell(report); };
    QueueConsumer consumer = consumer::make_queue_consumer(
        Queue{[this](const Queue::Limits&) { return around_.queue->open(); }}, options,
        [this](const QueueConsumerOptions& checked) {
            return consumer::appliers<consumer::LibpqBrokerStore>(
                around_.url,
                {.consumer = checked.consumer,
                 .connect_timeout_s = checked.connect_timeout_s,
                 .prunes = checked.inbox_retention_s > 0,
                 .counts_begun = checked.max_deliveries > 0},
                [this](PGconn* connection, std::span<const Message> messages) {
                    handle(connection, messages);
                });
        },
        consumer::Env{clock_, world_.random().bits()});
    stop_ = [&consumer] { consumer.stop(); };
    const std::shared_ptr<void> gone(nullptr, [this](void*) { stop_ = nullptr; });
    consumer.run();
}

void Receiver::tell(const ConsumerReport& report) {
    using What = ConsumerReport::What;
    if (report.what == What::kRepeat) around_.effects.repeated();
    if (!world_.tracing() || report.what == What::kApplied) return;
    std::string line = "member " + std::to_string(number_) + " reports " +
                       std::to_string(static_cast<int>(report.what));
    if (report.message != nullptr) line.append(" of ").append(report.message->id);
    world_.trace(line + ": " + describe(report.error));
}

void Receiver::handle(PGconn* connection, std::span<const Message> messages) {
    for (const Message& message : messages) apply(connection, message);
}

void Receiver::dawdle() {
    Random& random = world_.random();
    if (random.chance(0.6)) return;
    world_.sleep(random.chance(0.03) ? random.between(1, 3'000) * kMs : random.between(10, 5'000));
}

void Receiver::apply(PGconn* connection, const Message& message) {
    if (around_.handles_it(connection, message)) return;
    const Position number = number_of(message.id);
    // Who stood still behind its BEGIN finds its session gone, and what it had taken with another.
    const auto can_commit = [&] {
        const Result answer(PQexec(connection, "SELECT 1"));
        return PQresultStatus(answer.get()) == PGRES_TUPLES_OK;
    };
    const Fate fate = around_.effects.handed(number, number_, can_commit);
    world_.trace("member " + std::to_string(number_) + " is handed e" + std::to_string(number) +
                 " the " + std::to_string(message.attempt) + ". time");
    dawdle();
    if (world_.now_us() < around_.needs_away_until_us) {
        throw Error(ErrorCode::kSinkUnavailable, Advice::kRetryDestination, "stock is away");
    }
    switch (fate) {
        case Fate::kFailsTwice:
            if (around_.effects.times(number) <= 2) throw std::runtime_error("not now");
            break;
        case Fate::kFailsAlways:
            throw std::runtime_error("no stock");
        case Fate::kRefused:
            throw Error(ErrorCode::kHandlerFailed, Advice::kDeadLetter, "never");
        case Fate::kBadStatement:
            static_cast<void>(Result(PQexec(connection, "SELECT 1 / 0")));
            return;
        case Fate::kEndsSession:
            static_cast<void>(
                Result(PQexec(connection, "SELECT pg_terminate_backend(pg_backend_pid())")));
            return;
        case Fate::kApplied:
            break;
    }
    const std::string key(message.key);
    must(connection, "INSERT INTO simulation.effects (event, key, member) VALUES (" +
                         std::to_string(number) + ", '" + key + "', " + std::to_string(number_) +
                         ")");
    dawdle();
    must(connection, "INSERT INTO simulation.accounts AS a VALUES ('" + key +
                         "', 1) ON CONFLICT (key) DO UPDATE SET effects = a.effects + 1");
    dawdle();
}

}  // namespace outbox::simulation
