#include "consumer/sqlite_store.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>
#include <xxhash.h>

#include <outbox/adapters/sqlite_consumer.h>

#include "consumer/mailbox_loop.h"
#include "consumer/message_time.h"
#include "core/url.h"

namespace outbox::consumer {
namespace {

constexpr const char* kLeaseSuffix = "-outbox-mailbox-lease";

// In the order of `Statement`.
constexpr const char* kSql[] = {
    "BEGIN IMMEDIATE",
    "COMMIT",
    "ROLLBACK",
    "PRAGMA data_version",
    // What is present, never what lies behind a remembered position.
    "SELECT position, id, topic, key, headers, payload FROM outbox_mailbox "
    "WHERE mailbox = ?1 AND (coalesce(key, '') = '' "
    "      OR key NOT IN (SELECT value FROM json_each(?2))) "
    "  AND position NOT IN (SELECT value FROM json_each(?3)) "
    "ORDER BY position LIMIT ?4",
    "SELECT position, id, topic, key, headers, payload FROM outbox_mailbox "
    "WHERE mailbox = ?1 AND position IN (SELECT value FROM json_each(?2)) ORDER BY position",
    "SELECT 0, message_id, topic, key, headers, payload FROM outbox_inbox_dead_letters "
    "WHERE consumer = ?1 AND retry_requested_at IS NOT NULL ORDER BY retry_requested_at LIMIT ?2",
    "DELETE FROM outbox_mailbox WHERE mailbox = ?1 AND position = ?2",
    "INSERT INTO outbox_inbox (consumer, message_id, message_time) "
    "VALUES (?1, ?2, coalesce(?3, -9223372036854775807)) "
    "ON CONFLICT (consumer, message_id) DO NOTHING",
    "SELECT floor FROM outbox_inbox_floor WHERE consumer = ?1",
    "DELETE FROM outbox_inbox_dead_letters "
    "WHERE consumer = ?1 AND message_id = ?2 AND retry_requested_at IS NOT NULL",
    "INSERT INTO outbox_inbox_dead_letters "
    "  (consumer, message_id, topic, key, headers, payload, attempts, error_code, error) "
    "SELECT ?1, id, topic, key, headers, payload, ?4, ?5, ?6 FROM outbox_mailbox "
    "WHERE mailbox = ?2 AND position = ?3 "
    "ON CONFLICT (consumer, message_id) DO UPDATE SET attempts = excluded.attempts, "
    "  error_code = excluded.error_code, error = excluded.error, died_at = excluded.died_at, "
    "  retry_requested_at = NULL",
    "UPDATE outbox_inbox_dead_letters SET attempts = attempts + ?3, error_code = ?4, error = ?5, "
    "  died_at = CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer), "
    "  retry_requested_at = NULL WHERE consumer = ?1 AND message_id = ?2",
    "INSERT INTO outbox_inbox_stats (consumer, member, applied, repeats, failed, dead) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (consumer, member) DO UPDATE SET "
    "  applied = excluded.applied, repeats = excluded.repeats, failed = excluded.failed, "
    "  dead = excluded.dead, updated_at = excluded.updated_at",
};

void append_json_string(std::string& out, std::string_view text) {
    constexpr std::string_view kHex = "0123456789abcdef";
    out += '"';
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < ' ') {
            out.append("\\u00").append(1, kHex[byte >> 4]).append(1, kHex[byte & 0xF]);
            continue;
        }
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    out += '"';
}

std::string json_array(const std::vector<std::string>& texts) {
    std::string out = "[";
    for (const std::string& text : texts) {
        if (out.size() > 1) out += ',';
        append_json_string(out, text);
    }
    return out + "]";
}

std::string json_array(const std::vector<std::int64_t>& numbers) {
    std::string out = "[";
    for (const std::int64_t number : numbers) {
        if (out.size() > 1) out += ',';
        out += std::to_string(number);
    }
    return out + "]";
}

}  // namespace

/// One execution of a prepared statement; resets it at the end. Views must outlive it.
class SqliteStore::Use {
  public:
    Use(const SqliteStore& store, Statement statement)
        : statement_(store.statements_[statement].get()) {}
    ~Use() {
        sqlite3_reset(statement_);
        sqlite3_clear_bindings(statement_);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    Use& text(std::string_view value) {
        note(sqlite3_bind_text64(statement_, ++index_, value.data(), value.size(), SQLITE_STATIC,
                                 SQLITE_UTF8));
        return *this;
    }
    Use& number(std::int64_t value) {
        note(sqlite3_bind_int64(statement_, ++index_, value));
        return *this;
    }
    Use& number_or_null(std::optional<std::int64_t> value) {
        if (value) return number(*value);
        ++index_;
        return *this;
    }

    /// True: a row. False: the end, or an error (`failed`).
    bool next() {
        if (bind_error_ != SQLITE_OK) return false;
        const int code = sqlite3_step(statement_);
        failed_ = code != SQLITE_ROW && code != SQLITE_DONE;
        return code == SQLITE_ROW;
    }
    [[nodiscard]] bool failed() const { return failed_ || bind_error_ != SQLITE_OK; }

    [[nodiscard]] std::int64_t integer(int column) const {
        return sqlite3_column_int64(statement_, column);
    }
    [[nodiscard]] std::string_view bytes(int column) const {
        if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return {};
        const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
        const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
        return data == nullptr ? std::string_view("") : std::string_view(data, size);
    }

    /// Appends the rows as messages until one reaches `max_bytes`.
    void append_messages(std::size_t max_bytes, spi::EventBatch& out) {
        const auto copied = [&](int column) {
            const std::string_view value = bytes(column);
            return value.data() == nullptr ? value : out.copy(value);
        };
        while (out.bytes() < max_bytes && next()) {
            spi::EventView event;
            event.position = integer(0);
            event.id = copied(1);
            event.topic = copied(2);
            event.key = copied(3);
            event.headers = copied(4);
            event.payload = copied(5);
            out.add(event);
        }
    }

  private:
    void note(int code) {
        if (code != SQLITE_OK) bind_error_ = code;
    }

    sqlite3_stmt* statement_;
    int index_ = 0;
    int bind_error_ = SQLITE_OK;
    bool failed_ = false;
};

SqliteStore::SqliteStore(std::string path, const MailboxOptions& options)
    : path_(std::move(path)),
      mailbox_(options.mailbox),
      consumer_(options.consumer),
      busy_timeout_ms_(options.connect_timeout_s * 1000) {}

SqliteStore::~SqliteStore() {
    disconnect();
}

Status SqliteStore::connect() {
    if (connection_) {
        int moved = 0;
        const int code =
            sqlite3_file_control(connection_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
        if (code != SQLITE_OK || moved == 0) return {};
    }
    disconnect();
    Status status = open();
    if (!status.ok()) disconnect();
    return status;
}

void SqliteStore::disconnect() {
    for (SqliteStatement& statement : statements_) statement.reset();
    connection_.reset();
    seen_version_.reset();
    if (lease_fd_ >= 0) ::close(std::exchange(lease_fd_, -1));
}

Status SqliteStore::open() {
    sqlite3* database = nullptr;
    const int code = sqlite3_open_v2(path_.c_str(), &database,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    connection_.reset(database);
    const std::string doing = "opening " + path_;
    if (code != SQLITE_OK) return error(doing);
    sqlite3_extended_result_codes(database, 1);
    sqlite3_busy_timeout(database, busy_timeout_ms_);
    for (std::size_t i = 0; i < kStatements; ++i) {
        sqlite3_stmt* compiled = nullptr;
        if (sqlite3_prepare_v3(database, kSql[i], -1, SQLITE_PREPARE_PERSISTENT, &compiled,
                               nullptr) != SQLITE_OK) {
            return error(doing);
        }
        statements_[i].reset(compiled);
    }
    return {};
}

Result<bool> SqliteStore::hold_mailbox() {
    if (lease_fd_ >= 0) return true;
    const std::string path = path_ + kLeaseSuffix;
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
        return true;
    }
    const bool taken = errno == EAGAIN || errno == EACCES;
    const ErrorInfo why = refused();
    ::close(fd);
    if (taken) return false;
    return why;
}

Status SqliteStore::report(const Figures& figures) {
    const std::string member = member_name();
    Use use(*this, kReport);
    use.text(consumer_).text(member).number(static_cast<std::int64_t>(figures.applied));
    use.number(static_cast<std::int64_t>(figures.repeats));
    use.number(static_cast<std::int64_t>(figures.failed));
    use.number(static_cast<std::int64_t>(figures.dead));
    use.next();
    return use.failed() ? Status(error("writing outbox_inbox_stats")) : Status();
}

Result<bool> SqliteStore::may_have_news() {
    if (!seen_version_) return true;
    Use version(*this, kVersion);
    if (!version.next()) return error("looking for new messages");
    return version.integer(0) != *seen_version_;
}

Status SqliteStore::fetch(const Choice& choice, const FetchLimits& limits, spi::EventBatch& out) {
    {
        // Read first: what arrives in between is seen twice rather than not at all.
        Use version(*this, kVersion);
        if (!version.next()) return error("looking for new messages");
        seen_version_ = version.integer(0);
    }
    const std::string only = json_array(choice.only);
    const std::string keys = json_array(choice.without_keys);
    const std::string positions = json_array(choice.without_positions);
    Use rows(*this, choice.only.empty() ? kFetch : kFetchOnly);
    rows.text(mailbox_);
    if (choice.only.empty()) {
        rows.text(keys).text(positions).number(static_cast<std::int64_t>(limits.max_messages));
    } else {
        rows.text(only);
    }
    rows.append_messages(limits.max_bytes, out);
    return rows.failed() ? Status(error("reading the mailbox")) : Status();
}

Status SqliteStore::fetch_retries(std::size_t limit, spi::EventBatch& out) {
    Use rows(*this, kFetchRetries);
    rows.text(consumer_).number(static_cast<std::int64_t>(limit));
    rows.append_messages(SIZE_MAX, out);
    return rows.failed() ? Status(error("reading dead letters")) : Status();
}

Status SqliteStore::step(Statement statement, const char* doing) {
    Use use(*this, statement);
    use.next();
    return use.failed() ? Status(error(doing)) : Status();
}

Result<Taken> SqliteStore::begin(const spi::EventView& message) {
    if (!connection_ || lease_fd_ < 0) {
        return ErrorInfo{ErrorCode::kConnectionLost,
                         Advice::kRetryDestination,
                         {},
                         "the session ended with the message before; a new one is made"};
    }
    if (Status status = step(kBegin, "beginning a transaction"); !status.ok()) return status;
    Taken taken = Taken::kGone;
    Status status = take_in_transaction(message, taken);
    if (status.ok()) return taken;
    end_transaction();
    return status;
}

Status SqliteStore::take_in_transaction(const spi::EventView& message, Taken& taken) {
    {
        Use take(*this, message.position == 0 ? kTakeRetry : kTake);
        if (message.position == 0) {
            take.text(consumer_).text(message.id);
        } else {
            take.text(mailbox_).number(message.position);
        }
        take.next();
        if (take.failed()) return error("taking a message");
        if (sqlite3_changes64(connection_.get()) == 0) return {};
    }
    bool is_new = true;
    if (message.position != 0) {
        const auto time_us = message_time_us(message);
        const std::int64_t now_us = wall_clock_us();
        if (may_be_quarantined(time_us, now_us)) {
            if (Status status = check_floor(message, *time_us, now_us); !status.ok()) return status;
        }
        if (Status status = enter(message, is_new); !status.ok()) return status;
    }
    taken = is_new ? Taken::kNew : Taken::kRepeat;
    return {};
}

Result<std::vector<Taken>> SqliteStore::begin_all(std::span<const spi::EventView> messages) {
    if (!connection_ || lease_fd_ < 0) {
        return ErrorInfo{ErrorCode::kConnectionLost, Advice::kRetryDestination, {}, "one by one"};
    }
    if (Status status = step(kBegin, "beginning a transaction"); !status.ok()) return status;
    std::vector<Taken> taken(messages.size(), Taken::kGone);
    for (std::size_t i = 0; i < messages.size(); ++i) {
        if (Status status = take_in_transaction(messages[i], taken[i]); !status.ok()) {
            end_transaction();
            return status;
        }
    }
    return taken;
}

// SQLite has one writer, so no floor can rise between this look and the insert.
Status SqliteStore::check_floor(const spi::EventView& message, std::int64_t time_us,
                                std::int64_t now_us) {
    Use floor(*this, kFloor);
    floor.text(consumer_);
    const bool found = floor.next();
    if (floor.failed()) return error("reading the inbox's floor");
    return quarantine_unless(message.id, consumer_, time_us, found ? floor.integer(0) : kNoFloorUs,
                             now_us);
}

Status SqliteStore::enter(const spi::EventView& message, bool& is_new) {
    Use enter(*this, kEnter);
    enter.text(consumer_).text(message.id).number_or_null(message_time_us(message));
    enter.next();
    if (enter.failed()) return error("entering a message in outbox_inbox");
    is_new = sqlite3_changes64(connection_.get()) == 1;
    return {};
}

Status SqliteStore::commit() {
    const auto handler_failed = [&](const std::string& what) {
        end_transaction();
        return Status(ErrorCode::kHandlerFailed, Advice::kRetryEvent, what);
    };
    if (sqlite3_get_autocommit(connection_.get()) != 0) {
        return handler_failed(
            "the handler, or an error that it ignored, ended the transaction; it must neither "
            "commit nor roll back");
    }
    reset_open_statements();
    Status status = step(kCommit, "committing");
    if (!status.ok()) end_transaction();
    return status;
}

// One that a handler left open would keep the transaction from ending, or its snapshot in use.
void SqliteStore::reset_open_statements() const {
    for (sqlite3_stmt* s = sqlite3_next_stmt(connection_.get(), nullptr); s != nullptr;
         s = sqlite3_next_stmt(connection_.get(), s)) {
        if (sqlite3_stmt_busy(s) != 0) sqlite3_reset(s);
    }
}

Status SqliteStore::roll_back(ErrorInfo& /*cause*/) {
    end_transaction();
    return {};
}

// A transaction that cannot be rolled back dies with the connection.
void SqliteStore::end_transaction() {
    reset_open_statements();
    if (sqlite3_get_autocommit(connection_.get()) != 0) return;
    if (!step(kRollback, "rolling back").ok()) disconnect();
}

Status SqliteStore::bury(const spi::EventView& message, const Burial& burial) {
    if (Status status = step(kBegin, "beginning a transaction"); !status.ok()) return status;
    Status status = bury_in_transaction(message, burial);
    if (status.ok()) status = step(kCommit, "committing");
    if (!status.ok()) end_transaction();
    return status;
}

Status SqliteStore::bury_in_transaction(const spi::EventView& message, const Burial& burial) {
    const char* doing = "moving a message to outbox_inbox_dead_letters";
    if (message.position == 0) {
        Use again(*this, kBuryAgain);
        again.text(consumer_).text(message.id).number(burial.attempts);
        again.text(burial.error_code).text(burial.error);
        again.next();
        return again.failed() ? Status(error(doing)) : Status();
    }
    {
        Use copy(*this, kBuryCopy);
        copy.text(consumer_).text(mailbox_).number(message.position).number(burial.attempts);
        copy.text(burial.error_code).text(burial.error);
        copy.next();
        if (copy.failed()) return error(doing);
        if (sqlite3_changes64(connection_.get()) == 0) return {};
    }
    Use take(*this, kTake);
    take.text(mailbox_).number(message.position);
    take.next();
    if (take.failed()) return error(doing);
    bool is_new = false;
    return enter(message, is_new);
}

}  // namespace outbox::consumer

namespace outbox {

MailboxConsumer sqlite_mailbox_consumer(const std::string& url, SqliteBatchHandler handler,
                                        MailboxOptions options) {
    const Url parsed = parse_url(url).value_or_throw();
    if (parsed.scheme != "sqlite" || !parsed.authority.empty() || parsed.path.size() < 2) {
        throw Error(ErrorCode::kConfigInvalid, Advice::kStop,
                    "'" + redact(url) + "' names no SQLite file: write sqlite:///absolute/path.db");
    }
    options = consumer::checked(std::move(options));
    auto store = std::make_unique<consumer::SqliteStore>(parsed.path, options);
    const consumer::SqliteStore& session = *store;
    return consumer::make_mailbox_consumer(
        std::move(store),
        [&session, handler = std::move(handler)](std::span<const Message> messages) {
            handler(session.connection(), messages);
        },
        std::move(options), url);
}

MailboxConsumer sqlite_mailbox_consumer(const std::string& url, SqliteHandler handler,
                                        MailboxOptions options) {
    return sqlite_mailbox_consumer(
        url,
        SqliteBatchHandler([handler = std::move(handler)](sqlite3* transaction,
                                                          std::span<const Message> messages) {
            for (const Message& message : messages) handler(transaction, message);
        }),
        std::move(options));
}

}  // namespace outbox
