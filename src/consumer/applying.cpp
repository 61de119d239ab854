#include "consumer/applying.h"

#include <unistd.h>
#include <utility>

#include "consumer/broker_store.h"
#include "core/utf8.h"

namespace outbox::consumer {

std::string member_name() {
    constexpr std::size_t kMaxNameBytes = 255;
    char host[kMaxNameBytes + 1] = "";
    static_cast<void>(::gethostname(host, sizeof host - 1));
    static std::atomic<int> members = 0;
    const int number = ++members;
    return std::string(host) + "/" + std::to_string(::getpid()) +
           (number == 1 ? "" : "/" + std::to_string(number));
}

Status check_inbox_version(std::int64_t version) {
    if (version <= kInboxVersion) return {};
    return {ErrorCode::kMigrationRefused, Advice::kStop,
            "the consumer's tables are newer than this build: they have migration " +
                std::to_string(version) + ", this build knows up to " +
                std::to_string(kInboxVersion) + "; start a newer build of the consumer"};
}

ErrorInfo offset_lost(std::string_view consumer, const OffsetStep& step) {
    return {ErrorCode::kConflict,
            Advice::kStop,
            {},
            "the offset of " + std::string(step.topic) + "/" + std::to_string(step.partition) +
                " in the database is not the one that consumer " + std::string(consumer) +
                " left there: another member has the partition, or the database was set back"};
}

bool is_offset_lost(const ErrorInfo& error) {
    return error.code == ErrorCode::kConflict && error.advice == Advice::kStop;
}

Message message_of(const spi::EventView& event, std::uint32_t attempt) {
    return {.id = event.id,
            .topic = event.topic,
            .key = event.key,
            .payload = event.payload,
            .headers_json = event.headers,
            .position = event.position,
            .attempt = attempt};
}

std::optional<ErrorInfo> thrown_by(const std::function<void()>& handler) {
    std::string what;
    try {
        handler();
        return std::nullopt;
    } catch (const Error& error) {
        return error.info();
    } catch (const std::exception& error) {
        what = error.what();
    } catch (...) {
        what = "an exception that is no std::exception";
    }
    return ErrorInfo{ErrorCode::kHandlerFailed, Advice::kRetryEvent, {}, std::move(what)};
}

std::string storable(const ErrorInfo& error) {
    return to_storable_text(describe(error), kMaxErrorBytes);
}

ConsumerReport::What LiveStats::count(Taken taken) {
    const bool is_new = taken == Taken::kNew;
    bump(is_new ? applied : repeats);
    return is_new ? ConsumerReport::What::kApplied : ConsumerReport::What::kRepeat;
}

ConsumerStats LiveStats::read() const {
    return {.applied = applied.load(std::memory_order_relaxed),
            .repeats = repeats.load(std::memory_order_relaxed),
            .failed = failed.load(std::memory_order_relaxed),
            .dead = dead.load(std::memory_order_relaxed),
            .conflicts = conflicts.load(std::memory_order_relaxed)};
}

MemberStats LiveStats::member(std::int64_t lag, const std::string& queue,
                              std::optional<std::int64_t> queue_lag) const {
    const ConsumerStats seen = read();
    return {.applied = seen.applied,
            .repeats = seen.repeats,
            .failed = seen.failed,
            .dead = seen.dead,
            .lag = lag,
            .queue = queue,
            .queue_lag = queue_lag};
}

}  // namespace outbox::consumer
