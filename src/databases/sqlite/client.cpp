#include "databases/sqlite/client.h"

#include <chrono>
#include <filesystem>
#include <sqlite3.h>
#include <sys/stat.h>
#include <system_error>
#include <utility>

#include "databases/sqlite/errors.h"

namespace outbox::sqlite {
namespace {

constexpr const char* kReadSchema = "SELECT 1 FROM sqlite_master LIMIT 1";
constexpr const char* kTransactionEnded = "the schema could not be read whole";

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const {
    sqlite3_finalize(statement);
}

Statement::Statement(const Database& database, std::string_view sql, Use use)
    : connection_(database.handle()), role_(database.role()), path_(&database.path()) {
    prepare(sql, use);
}

Statement::Statement(sqlite3* callers, std::string_view sql, Role role, const char* doing)
    : connection_(callers), role_(role), doing_(doing) {
    // One that does not write yet would not wait for other writers once it has read.
    if (sqlite3_txn_state(callers, "main") == SQLITE_TXN_WRITE) read_schema(callers, role, doing);
    prepare(sql, Use::kOnce);
}

void Statement::prepare(std::string_view sql, Use use) {
    sqlite3_stmt* prepared = nullptr;
    const int result =
        sqlite3_prepare_v3(connection_, sql.data(), static_cast<int>(sql.size()),
                           use == Use::kKept ? SQLITE_PREPARE_PERSISTENT : 0, &prepared, nullptr);
    statement_.reset(prepared);
    note(result);
}

void Statement::note(int result) {
    if (result == SQLITE_OK || result == SQLITE_ROW || result == SQLITE_DONE || failed()) return;
    if (doing_ != nullptr) {
        throw Error(sqlite_error(role_, sqlite3_extended_errcode(connection_),
                                 sqlite3_errmsg(connection_), doing_));
    }
    code_ = sqlite3_extended_errcode(connection_);
    message_ = sqlite3_errmsg(connection_);
}

std::string_view Statement::sql() const {
    const char* text = sqlite3_sql(statement_.get());
    return text == nullptr ? std::string_view() : std::string_view(text);
}

bool Statement::writes() const {
    return sqlite3_stmt_readonly(statement_.get()) == 0;
}

Statement& Statement::bind(std::int64_t value) {
    if (!failed()) note(sqlite3_bind_int64(statement_.get(), ++bound_, value));
    return *this;
}

Statement& Statement::bind(double value) {
    if (!failed()) note(sqlite3_bind_double(statement_.get(), ++bound_, value));
    return *this;
}

Statement& Statement::bind(std::string_view text) {
    if (text.data() == nullptr) return bind_null();
    if (!failed()) {
        note(sqlite3_bind_text64(statement_.get(), ++bound_, text.data(), text.size(),
                                 SQLITE_TRANSIENT, SQLITE_UTF8));
    }
    return *this;
}

Statement& Statement::bind_blob(std::string_view bytes) {
    if (bytes.data() == nullptr) return bind_null();
    if (!failed()) {
        note(sqlite3_bind_blob64(statement_.get(), ++bound_, bytes.data(), bytes.size(),
                                 SQLITE_TRANSIENT));
    }
    return *this;
}

Statement& Statement::bind_null() {
    if (!failed()) note(sqlite3_bind_null(statement_.get(), ++bound_));
    return *this;
}

Statement& Statement::bind_or_null(std::optional<std::int64_t> value) {
    return value ? bind(*value) : bind_null();
}

Statement& Statement::lend(std::string_view text) {
    return lend_or_null(text.data() == nullptr ? std::string_view("") : text);
}

Statement& Statement::lend_or_null(std::string_view text) {
    if (text.data() == nullptr) return bind_null();
    if (!failed()) {
        note(sqlite3_bind_text64(statement_.get(), ++bound_, text.data(), text.size(),
                                 SQLITE_STATIC, SQLITE_UTF8));
    }
    return *this;
}

Statement& Statement::lend_blob(std::string_view bytes) {
    if (bytes.data() == nullptr) return bind_null();
    if (!failed()) {
        note(sqlite3_bind_blob64(statement_.get(), ++bound_, bytes.data(), bytes.size(),
                                 SQLITE_STATIC));
    }
    return *this;
}

bool Statement::step() {
    if (failed()) return false;
    const int result = sqlite3_step(statement_.get());
    note(result);
    return result == SQLITE_ROW;
}

Status Statement::run(const char* doing) {
    while (step()) {
    }
    Status outcome = status(doing);
    reset();
    return outcome;
}

std::int64_t Statement::changed() {
    step();
    return sqlite3_changes64(connection_);
}

void Statement::reset() {
    sqlite3_reset(statement_.get());
    bound_ = 0;
}

void Statement::forget() {
    reset();
    if (statement_) sqlite3_clear_bindings(statement_.get());
    code_ = 0;
    message_.clear();
}

Status Statement::status(const char* doing) const {
    if (!failed()) return {};
    return sqlite_error(role_, code_, message_,
                        doing != nullptr   ? std::string(doing)
                        : path_ != nullptr ? *path_
                                           : std::string(doing_));
}

std::string_view Statement::text(int column) const {
    if (sqlite3_column_type(statement_.get(), column) == SQLITE_NULL) return {};
    // The bytes of text and of a blob alike; SQLite gives no pointer for an empty blob.
    const void* bytes = sqlite3_column_blob(statement_.get(), column);
    const int size = sqlite3_column_bytes(statement_.get(), column);
    return bytes == nullptr
               ? std::string_view("")
               : std::string_view(static_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

std::int64_t Statement::integer(int column) const {
    return sqlite3_column_int64(statement_.get(), column);
}

double Statement::number(int column) const {
    return sqlite3_column_double(statement_.get(), column);
}

int Statement::columns() const {
    return sqlite3_column_count(statement_.get());
}

void Database::Close::operator()(sqlite3* database) const {
    sqlite3_close_v2(database);
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path, int busy_timeout_ms,
                                                 Role role, File file) {
    auto database = std::make_unique<Database>();
    database->path_ = path;
    database->role_ = role;
    sqlite3* handle = nullptr;
    const int create = file == File::kMayBeMade ? SQLITE_OPEN_CREATE : 0;
    const int result = sqlite3_open_v2(
        path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | create, nullptr);
    database->handle_.reset(handle);
    if (result != SQLITE_OK) {
        const bool names_file =
            role != Role::kReceive && role != Role::kCaller && role != Role::kEmit;
        return sqlite_error(role, sqlite3_extended_errcode(handle), sqlite3_errmsg(handle),
                            names_file ? path : "opening " + path);
    }
    sqlite3_extended_result_codes(handle, 1);
    sqlite3_busy_timeout(handle, busy_timeout_ms);
    return database;
}

Status Database::execute(const std::string& sql) {
    if (sqlite3_exec(handle(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return {};
    return sqlite_error(role_, sqlite3_extended_errcode(handle()), sqlite3_errmsg(handle()), path_);
}

Status Database::begin() {
    Status status = execute("BEGIN IMMEDIATE");
    return status.ok() ? read_schema() : status;
}

Status Database::read_schema() {
    Status status = execute(kReadSchema);
    if (status.ok() && in_transaction()) return status;
    if (status.ok()) {
        status = sqlite_error(role_, SQLITE_IOERR, kTransactionEnded, path_);
    }
    roll_back(handle());
    return status;
}

std::int64_t Database::changes() const {
    return sqlite3_changes64(handle());
}

bool Database::has_moved() const {
    int moved = 0;
    const int asked = sqlite3_file_control(handle(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    if (asked == SQLITE_OK && moved != 0) return true;
    // SQLite has followed the links and looks at what they led to.
    const char* opened = sqlite3_db_filename(handle(), "main");
    struct stat there{};
    struct stat ours{};
    return opened != nullptr && path_ != opened && ::stat(opened, &ours) == 0 &&
           (::stat(path_.c_str(), &there) != 0 || there.st_dev != ours.st_dev ||
            there.st_ino != ours.st_ino);
}

Status Database::require_unmoved() const {
    if (!has_moved()) return {};
    return sqlite_error(role_, SQLITE_READONLY_DBMOVED, "the file was replaced or removed", path_);
}

bool Database::in_transaction() const {
    return sqlite::in_transaction(handle());
}

std::string Database::file() const {
    const char* name = sqlite3_db_filename(handle(), "main");
    return name == nullptr ? path_ : std::string(name);
}

void Database::refuse_commits(const bool* refused) {
    sqlite3_commit_hook(
        handle(), [](void* is_refused) { return *static_cast<const bool*>(is_refused) ? 1 : 0; },
        const_cast<bool*>(refused));
}

void Database::tell_rollbacks(bool* rolled_back) {
    sqlite3_rollback_hook(
        handle(), [](void* is_rolled_back) { *static_cast<bool*>(is_rolled_back) = true; },
        rolled_back);
}

Status Database::failure_of_machine(const char* doing) const {
    constexpr int kPrimary = 0xff;
    const int code = sqlite3_extended_errcode(handle());
    switch (code & kPrimary) {
        case SQLITE_IOERR:
        case SQLITE_FULL:
        case SQLITE_CANTOPEN:
        case SQLITE_NOMEM:
            return sqlite_error(role_, code, sqlite3_errmsg(handle()), doing);
        default:
            return {};
    }
}

void Database::reset_open_statements() {
    for (sqlite3_stmt* s = sqlite3_next_stmt(handle(), nullptr); s != nullptr;
         s = sqlite3_next_stmt(handle(), s)) {
        if (sqlite3_stmt_busy(s) != 0) sqlite3_reset(s);
    }
}

void execute(sqlite3* callers, const char* sql, Role role, const std::string& doing) {
    if (sqlite3_exec(callers, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return;
    throw Error(
        sqlite_error(role, sqlite3_extended_errcode(callers), sqlite3_errmsg(callers), doing));
}

void read_schema(sqlite3* callers, Role role, const std::string& doing) {
    execute(callers, kReadSchema, role, doing);
    if (!in_transaction(callers)) {
        throw Error(sqlite_error(role, SQLITE_IOERR, kTransactionEnded, doing));
    }
}

void begin_writing(sqlite3* callers, const char* changes_nothing, Role role,
                   const std::string& doing) {
    if (sqlite3_txn_state(callers, "main") == SQLITE_TXN_WRITE) return;
    execute(callers, changes_nothing, role, doing);
    if (!in_transaction(callers)) {
        throw Error(sqlite_error(role, SQLITE_IOERR, kTransactionEnded, doing));
    }
}

bool in_transaction(sqlite3* callers) {
    return sqlite3_get_autocommit(callers) == 0;
}

void roll_back(sqlite3* callers) noexcept {
    if (in_transaction(callers)) sqlite3_exec(callers, "ROLLBACK", nullptr, nullptr, nullptr);
}

WriteTransaction::~WriteTransaction() {
    roll_back(database_.handle());
}

Session::Session(std::string path, int busy_timeout_ms, std::function<Status(Database&)> prepare)
    : path_(std::move(path)), busy_timeout_ms_(busy_timeout_ms), prepare_(std::move(prepare)) {}

Result<Database*> Session::get() {
    if (database_) {
        if (!database_->has_moved()) return database_.get();
        database_.reset();
        file_.reset();
        return replaced();
    }
    auto opened = Database::open(path_, busy_timeout_ms_, Role::kRunning);
    if (!opened.ok()) {
        return ErrorInfo{
            ErrorCode::kConnectFailed, Advice::kRetryDestination, opened.error().backend_code,
            "the file " + path_ + " is away or cannot be opened; is its volume there?"};
    }
    if (is_another()) return replaced();
    if (prepare_) {
        if (Status status = prepare_(**opened); !status.ok()) return status;
    }
    database_ = std::move(*opened);
    return database_.get();
}

bool Session::is_another() {
    struct stat there{};
    // Who has gone again since is met by `has_moved`.
    if (::stat(path_.c_str(), &there) != 0) return false;
    const auto before =
        std::exchange(file_, std::pair<std::uint64_t, std::uint64_t>(there.st_dev, there.st_ino));
    return before && *before != *file_;
}

ErrorInfo Session::replaced() const {
    return {ErrorCode::kServerChanged,
            Advice::kStop,
            {},
            "the file " + path_ + " was replaced or removed"};
}

std::string real_path(const std::string& path) {
    std::error_code none;
    const std::filesystem::path real = std::filesystem::canonical(path, none);
    return none ? path : real.string();
}

std::int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

}  // namespace outbox::sqlite
