#include "tests/simulation/receiving/receiver.h"

#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include <outbox/error.h>

#include "consumer/queue/consumer.h"

namespace outbox::simulation {

namespace {

constexpr std::int64_t kBootedAgoUs = 31 * kSecond;

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
    if (why->advice == Advice::kStop && !around_.may_end(number_, *why)) {
        around_.judge.violation("a member stopped: " + describe(*why));
    }
}

void Receiver::take_from_mailbox() {
    MailboxOptions options = around_.options;
    options.on_report = [this](const ConsumerReport& report) { tell(report); };
    MailboxMember member = around_.mailbox(
        clock_, [this](OpenTransaction& transaction, std::span<const Message> messages) {
            handle(transaction, messages);
        });
    consumer::MailboxLoop loop(std::move(member.store), std::move(member.handler), options,
                               consumer::Env{clock_, world_.random().bits()});
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
            return around_.appliers(
                checked, [this](OpenTransaction& transaction, std::span<const Message> messages) {
                    handle(transaction, messages);
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
    if (report.what == What::kDisconnected) around_.effects.down(number_);
    if (report.what == What::kConnected) around_.effects.up(number_);
    if (!world_.tracing() || report.what == What::kApplied) return;
    std::string line = "member " + std::to_string(number_) + " reports " +
                       std::to_string(static_cast<int>(report.what));
    if (report.message != nullptr) line += " of e" + std::to_string(number_of(report.message->id));
    world_.trace(line + ": " + describe(report.error));
}

void Receiver::handle(OpenTransaction& transaction, std::span<const Message> messages) {
    for (const Message& message : messages) apply(transaction, message);
}

void Receiver::dawdle() {
    Random& random = world_.random();
    if (random.chance(0.6)) return;
    world_.sleep(random.chance(0.03) ? random.between(1, 3'000) * kMs : random.between(10, 5'000));
}

void Receiver::apply(OpenTransaction& transaction, const Message& message) {
    if (around_.handles_it(transaction, message)) return;
    const Position number = number_of(message.id);
    // Who stood still behind its BEGIN finds its session gone, and what it had taken with another.
    const Fate fate =
        around_.effects.handed(number, number_, [&] { return transaction.can_commit(); });
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
            transaction.fail_a_statement();
            return;
        case Fate::kEndsSession:
            if (number % 2 == 0) {
                transaction.end();
                return;
            }
            transaction.begin_another();
            break;
        case Fate::kApplied:
            break;
    }
    const std::string key(message.key);
    transaction.run("INSERT INTO effects (event, key, member) VALUES (" + std::to_string(number) +
                    ", '" + key + "', " + std::to_string(number_) + ")");
    dawdle();
    transaction.run("INSERT INTO accounts AS a VALUES ('" + key +
                    "', 1) ON CONFLICT (key) DO UPDATE SET effects = a.effects + 1");
    dawdle();
}

}  // namespace outbox::simulation
