#include "databases/sqlite/objects.h"

#include <string_view>
#include <utility>

#include <outbox/consumer/claims.h>

#include "core/redact.h"
#include "core/url.h"
#include "databases/sqlite/client.h"

namespace outbox::sqlite {
namespace {

constexpr int kBusyMs = 5'000;

constexpr const char* kTable =
    "CREATE TABLE IF NOT EXISTS outbox_objects (\n"
    "    name       text PRIMARY KEY CHECK (length(name) = 64),\n"
    "    bytes      blob NOT NULL,\n"
    "    written_at integer NOT NULL\n"
    ")";
constexpr const char* kPut =
    "INSERT INTO outbox_objects (name, bytes, written_at) VALUES (?1, ?2, ?3) "
    "ON CONFLICT (name) DO UPDATE SET bytes = excluded.bytes, written_at = excluded.written_at";
constexpr const char* kHasTable = "SELECT 1 FROM sqlite_master WHERE name = 'outbox_objects'";
constexpr const char* kGet = "SELECT length(bytes), bytes FROM outbox_objects WHERE name = ?1";

class Objects final : public claim::ObjectStore {
  public:
    explicit Objects(const std::string& path)
        : url_("sqlite://" + path),
          session_(path, kBusyMs, [](Database& database) { return database.execute(kDurable); }) {}

    [[nodiscard]] const std::string& url() const override { return url_; }

    Status put(std::string_view name, std::string_view bytes,
               const std::stop_token& /*stop*/) override {
        const auto database = session_.get();
        if (!database.ok()) return described(database.error());
        Status status = (*database)->execute(kTable);
        if (status.ok()) {
            Statement insert(**database, kPut);
            insert.bind(name).lend_blob(bytes).bind(now_us());
            status = insert.run();
        }
        return status.ok() ? status : Status(described(status.error()));
    }

    Result<std::string> get(std::string_view name, std::size_t max_bytes,
                            const std::stop_token& /*stop*/) override {
        const auto database = session_.get();
        if (!database.ok()) return described(database.error());
        Statement table(**database, kHasTable);
        const bool there = table.step();
        if (!table.status().ok()) return described(table.status().error());
        if (!there) return no_object_table(*this, {});
        Statement select(**database, kGet);
        select.bind(name);
        const bool found = select.step();
        if (!select.status().ok()) return described(select.status().error());
        if (!found) return object_gone(*this, name);
        if (select.integer(0) > static_cast<std::int64_t>(max_bytes)) {
            return object_too_large(*this, name, max_bytes);
        }
        return std::string(select.text(1));
    }

  private:
    // Whatever fails there is the store's fault, but for an object that is larger than SQLite
    // takes.
    ErrorInfo described(ErrorInfo error) {
        if (error.code != ErrorCode::kPayloadTooLarge) error.advice = Advice::kRetryDestination;
        if (error.advice == Advice::kRetryDestination) session_.drop();
        error.message = "object store " + url_ + ": " + error.message;
        return error;
    }

    const std::string url_;
    Session session_;
};

}  // namespace

Result<std::unique_ptr<claim::ObjectStore>> open_objects(const std::string& url) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    if (!parsed->authority.empty() || parsed->path.size() < 2 || !parsed->query.empty()) {
        return ErrorInfo{ErrorCode::kConfigInvalid,
                         Advice::kStop,
                         {},
                         "the object store " + redact(url) +
                             " names no file: write sqlite:///absolute/path, and no parameters"};
    }
    return std::unique_ptr<claim::ObjectStore>(std::make_unique<Objects>(parsed->path));
}

}  // namespace outbox::sqlite

outbox::ClaimStore outbox::sqlite_claims(std::string_view url) {
    static_cast<void>(sqlite::open_objects(std::string(url)).value_or_throw());
    return {
        .open = [url = std::string(url)] { return sqlite::open_objects(url).value_or_throw(); }};
}
