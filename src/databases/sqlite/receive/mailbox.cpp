#include "databases/sqlite/receive/mailbox.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>
#include <xxhash.h>

#include <outbox/adapters/sqlite_consumer.h>

#include "consumer/one_by_one.h"
#include "core/json_text.h"
#include "mailbox/loop.h"

namespace outbox::consumer {
namespace {

constexpr const char* kLeaseSuffix = "-outbox-mailbox-lease";

constexpr const char* kDataVersion = "PRAGMA data_version";

constexpr const char* kWaiting =
    "SELECT count(*) FROM (SELECT 1 FROM outbox_mailbox WHERE mailbox = ?1 LIMIT ?2)";

// What is present, never what lies behind a remembered position.
constexpr const char* kFetch =
    "SELECT position, id, topic, key, headers, payload FROM outbox_mailbox "
    "WHERE mailbox = ?1 AND (coalesce(key, '') = '' "
    "      OR key NOT IN (SELECT value FROM json_each(?2))) "
    "  AND position NOT IN (SELECT value FROM json_each(?3)) "
    "ORDER BY position LIMIT ?4";

constexpr const char* kFetchOnly =
    "SELECT position, id, topic, key, headers, payload FROM outbox_mailbox "
    "WHERE mailbox = ?1 AND position IN (SELECT value FROM json_each(?2)) ORDER BY position";

// Positions begin anew where the mailbox is emptied or restored: a row of another id is not the one
// that was read. An id may be a blob.
constexpr const char* kTake =
    "DELETE FROM outbox_mailbox WHERE mailbox = ?1 AND position = ?2 AND CAST(id AS text) = ?3";

constexpr const char* kBury =
    "INSERT INTO outbox_inbox_dead_letters "
    "  (consumer, message_id, topic, key, headers, payload, attempts, error_code, error, mailbox, "
    "   died_at) "
    "SELECT ?1, id, topic, key, headers, payload, ?4, ?5, ?6, mailbox, ?7 FROM outbox_mailbox "
    "WHERE mailbox = ?2 AND position = ?3 AND CAST(id AS text) = ?8 "
    "ON CONFLICT (consumer, message_id) DO UPDATE SET attempts = excluded.attempts, "
    "  error_code = excluded.error_code, error = excluded.error, died_at = excluded.died_at, "
    "  retry_requested_at = NULL, mailbox = excluded.mailbox";

std::string json_numbers(const std::vector<std::int64_t>& numbers) {
    std::string out = "[";
    for (const std::int64_t number : numbers) {
        if (out.size() > 1) out += ',';
        out += std::to_string(number);
    }
    return out + "]";
}

}  // namespace

SqliteMailbox::SqliteMailbox(std::string path, const MailboxOptions& options,
                             const core::Clock& clock)
    : inbox_(std::move(path), options.connect_timeout_s, options.consumer,
             {kDataVersion, kWaiting, kFetch, kFetchOnly, kTake, kBury}, clock, options.mailbox),
      mailbox_(options.mailbox) {}

SqliteMailbox::~SqliteMailbox() {
    release();
}

void SqliteMailbox::disconnect() {
    inbox_.disconnect();
    release();
}

void SqliteMailbox::release() {
    held_in_ = 0;
    seen_version_.reset();
    if (lease_fd_ >= 0) ::close(std::exchange(lease_fd_, -1));
}

Result<Hold> SqliteMailbox::hold_mailbox() {
    if (held()) return Hold::kStill;
    release();
    const std::string path = sqlite::real_path(inbox_.session().path()) + kLeaseSuffix;
    const auto refused = [&] {
        return ErrorInfo{ErrorCode::kNoRights, Advice::kRetryDestination, std::to_string(errno),
                         "cannot lock " + path + ": " + std::strerror(errno) +
                             "; let this process write the file and its folder"};
    };
    constexpr int kMode = 0666;
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode);
    if (fd < 0) return refused();
    // One byte for each mailbox of the file.
    constexpr int kShift = 2;
    struct flock range{};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_start = static_cast<off_t>(XXH3_64bits(mailbox_.data(), mailbox_.size()) >> kShift);
    range.l_len = 1;
    if (::fcntl(fd, F_OFD_SETLK, &range) == 0) {
        lease_fd_ = fd;
        held_in_ = inbox_.session().number();
        return Hold::kNew;
    }
    const bool taken = errno == EAGAIN || errno == EACCES;
    const ErrorInfo why = refused();
    ::close(fd);
    if (taken) return Hold::kNo;
    return why;
}

Result<bool> SqliteMailbox::may_have_news() {
    if (!seen_version_) return true;
    const Run version(inbox_.session().statement(kDataVersion));
    if (!version->step()) return version->status("looking for new messages");
    return version->integer(0) != *seen_version_;
}

Result<std::int64_t> SqliteMailbox::waiting(std::int64_t most) {
    const Run count(inbox_.session().statement(kWaiting));
    count->lend(mailbox_).bind(most);
    if (!count->step()) return count->status("counting the mailbox");
    return count->integer(0);
}

Status SqliteMailbox::fetch(const Choice& choice, const FetchLimits& limits, spi::EventBatch& out) {
    {
        // Read first: what arrives in between is seen twice rather than not at all.
        const Run version(inbox_.session().statement(kDataVersion));
        if (!version->step()) return version->status("looking for new messages");
        seen_version_ = version->integer(0);
    }
    const std::string only = json_numbers(choice.only);
    const std::string keys = json_array(choice.without_keys);
    const std::string positions = json_numbers(choice.without_positions);
    const Run rows(inbox_.session().statement(choice.only.empty() ? kFetch : kFetchOnly));
    rows->lend(mailbox_);
    if (choice.only.empty()) {
        rows->lend(keys).lend(positions).bind(static_cast<std::int64_t>(limits.max_messages));
    } else {
        rows->lend(only);
    }
    append_messages(rows, limits.max_bytes, out);
    return rows->status("reading the mailbox");
}

Result<Taken> SqliteMailbox::begin(const spi::EventView& message) {
    auto taken = begin_all({&message, 1});
    if (!taken.ok()) return taken.status();
    return taken->front();
}

Result<std::vector<Taken>> SqliteMailbox::begin_all(std::span<const spi::EventView> messages) {
    if (!held()) {
        return ErrorInfo{ErrorCode::kConnectionLost,
                         Advice::kRetryDestination,
                         {},
                         "the session ended with the message before; a new one is made"};
    }
    if (Status status = inbox_.session().begin(); !status.ok()) return status;
    // What a handler puts into the mailbox itself does not change the version for this session.
    seen_version_.reset();
    std::vector<Taken> taken(messages.size(), Taken::kGone);
    for (std::size_t i = 0; i < messages.size(); ++i) {
        if (Status status = take(messages[i], taken[i]); !status.ok()) {
            inbox_.session().end_transaction();
            return status;
        }
    }
    return taken;
}

Status SqliteMailbox::take(const spi::EventView& message, Taken& taken) {
    bool was_there = false;
    if (Status status = remove(message, was_there); !status.ok()) return status;
    return was_there ? inbox_.enter(message, taken) : Status();
}

Status SqliteMailbox::remove(const spi::EventView& message, bool& was_there) {
    Status status = Run(inbox_.session().statement(kTake))
                        ->lend(mailbox_)
                        .bind(message.position)
                        .lend(message.id)
                        .run("taking a message out of the mailbox");
    was_there = status.ok() && inbox_.session().changes() == 1;
    return status;
}

Result<Taken> SqliteMailbox::bury(const spi::EventView& message, const Burial& burial) {
    if (Status status = inbox_.session().begin(); !status.ok()) return status;
    Taken taken = Taken::kGone;
    Status status = bury_in_transaction(message, burial, taken);
    if (status.ok()) status = inbox_.session().commit();
    if (status.ok()) return taken;
    inbox_.session().end_transaction();
    return status;
}

Status SqliteMailbox::bury_in_transaction(const spi::EventView& message, const Burial& burial,
                                          Taken& taken) {
    Status status = inbox_.enter_buried(message);
    if (!status.ok()) return status;
    const bool entered = inbox_.session().changes() == 1;
    if (entered) {
        status = Run(inbox_.session().statement(kBury))
                     ->lend(inbox_.consumer())
                     .lend(mailbox_)
                     .bind(message.position)
                     .bind(burial.attempts)
                     .lend(burial.error_code)
                     .lend(burial.error)
                     .bind(inbox_.now_us())
                     .lend(message.id)
                     .run("moving a message to outbox_inbox_dead_letters");
        if (!status.ok()) return status;
        if (inbox_.session().changes() == 0) {  // the row is gone: nothing is remembered
            inbox_.session().end_transaction();
            return inbox_.session().begin();
        }
    }
    bool was_there = false;
    status = remove(message, was_there);
    if (was_there) taken = entered ? Taken::kNew : Taken::kRepeat;
    return status;
}

}  // namespace outbox::consumer

namespace outbox {

MailboxConsumer sqlite_mailbox_consumer(const std::string& url, SqliteBatchHandler handler,
                                        MailboxOptions options) {
    const std::string path = consumer::sqlite_path(url);
    options = consumer::checked(std::move(options));
    const consumer::Env env = consumer::real_env();
    auto store = std::make_unique<consumer::SqliteMailbox>(path, options, env.clock);
    const consumer::SqliteMailbox& session = *store;
    return consumer::make_mailbox_consumer(
        std::move(store),
        [&session, handler = std::move(handler)](std::span<const Message> messages) {
            handler(session.connection(), messages);
        },
        std::move(options), env);
}

MailboxConsumer sqlite_mailbox_consumer(const std::string& url, SqliteHandler handler,
                                        MailboxOptions options) {
    return sqlite_mailbox_consumer(
        url, SqliteBatchHandler(consumer::one_by_one<sqlite3>(std::move(handler))),
        std::move(options));
}

}  // namespace outbox
