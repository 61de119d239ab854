#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/json_text.h"
#include "databases/sqlite/source/lease.h"
#include "databases/sqlite/webhook/store.h"

namespace outbox::sqlite {
namespace {

constexpr const char* kSource = "outbox_webhook_deliveries";
constexpr const char* kLease = "outbox_webhook_lease";
// What is lost with the machine is delivered again, no more.
constexpr const char* kSession = "PRAGMA synchronous = NORMAL";
constexpr int kSweptRows = 5'000;

constexpr const char* kColumns =
    "SELECT r.position, r.event_id, r.event_type, r.key, r.headers, r.payload, r.occurred_at, "
    "r.attempts, r.first_failed_at, r.next_attempt_at FROM outbox_webhook_deliveries r "
    "WHERE r.endpoint_id = ?1 AND r.dead = 0 "
    "AND r.position NOT IN (SELECT value FROM json_each(?2)) "
    "AND (coalesce(r.key, '') = '' OR r.key NOT IN (SELECT value FROM json_each(?3))) "
    "AND EXISTS (SELECT 1 FROM outbox_webhook_endpoints WHERE endpoint_id = ?1 AND revision = ?4 "
    "AND created_at = ?5) ";
constexpr const char* kDue =
    "AND r.attempts > 0 AND r.next_attempt_at <= ?6 ORDER BY r.next_attempt_at LIMIT ?7";
constexpr const char* kTooFar =
    "AND r.attempts > 0 AND r.next_attempt_at > ?6 ORDER BY r.next_attempt_at LIMIT ?7";
// A fresh delivery waits for an earlier one of its key that failed.
constexpr const char* kFresh =
    "AND r.attempts = 0 AND r.position > ?6 AND r.position <= ?8 AND (coalesce(r.key, '') = '' OR "
    "NOT EXISTS (SELECT 1 FROM outbox_webhook_deliveries f WHERE f.endpoint_id = r.endpoint_id AND "
    "f.key = r.key AND "
    "f.key IS NOT NULL AND f.attempts > 0 AND NOT f.dead AND f.position < r.position)) "
    "ORDER BY r.position LIMIT ?7";

// Those given up on as well, which are looked at like the others.
constexpr const char* kFails =
    "SELECT EXISTS (SELECT 1 FROM outbox_webhook_deliveries WHERE endpoint_id = ? AND attempts > "
    "0)";
constexpr const char* kLooked =
    "SELECT coalesce(max(position), 0), count(*) FROM (SELECT position FROM "
    "outbox_webhook_deliveries WHERE endpoint_id = ? AND position > ? ORDER BY position LIMIT ?)";
constexpr const char* kLast =
    "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'outbox_webhook_deliveries'), "
    "0)";
// Another event than the one that is held; that one may be gone, with its endpoint.
constexpr const char* kAnother =
    "SELECT 1 FROM outbox_webhook_deliveries WHERE position = ? AND NOT (endpoint_id = ? AND "
    "event_id = ?)";

constexpr const char* kBacklog =
    "SELECT EXISTS (SELECT 1 FROM outbox_webhook_deliveries d WHERE d.endpoint_id = ?1 AND "
    "d.position > ?2 AND d.attempts = 0 AND NOT d.dead), coalesce((SELECT f.next_attempt_at FROM "
    "outbox_webhook_deliveries f WHERE f.endpoint_id = ?1 AND f.attempts > 0 AND f.dead = 0 "
    "ORDER BY f.next_attempt_at LIMIT 1), 0)";

// In two: of (endpoint_id, position) > (?, ?) SQLite looks up the first column alone.
constexpr const char* kCount =
    "SELECT endpoint_id, count(*) FILTER (WHERE NOT dead), count(*) FILTER (WHERE dead), "
    "max(position) FROM (SELECT * FROM (SELECT endpoint_id, position, dead FROM "
    "outbox_webhook_deliveries WHERE endpoint_id = ?1 AND position > ?2 ORDER BY position LIMIT "
    "?3) UNION ALL SELECT * FROM (SELECT endpoint_id, position, dead FROM "
    "outbox_webhook_deliveries WHERE endpoint_id > ?1 ORDER BY endpoint_id, position LIMIT ?3) "
    "ORDER BY endpoint_id, position LIMIT ?3) GROUP BY endpoint_id ORDER BY endpoint_id";

constexpr const char* kDone =
    "DELETE FROM outbox_webhook_deliveries WHERE endpoint_id = ? AND event_id = ? AND position = ?";
constexpr const char* kFailed =
    "UPDATE outbox_webhook_deliveries SET attempts = ?3, first_failed_at = nullif(?4, 0), "
    "next_attempt_at = nullif(?5, 0), last_status = nullif(?6, 0), last_error = ?7, dead = ?8 "
    "WHERE endpoint_id = ?1 AND event_id = ?2 AND position = ?9 AND EXISTS (SELECT 1 FROM "
    "outbox_webhook_endpoints WHERE endpoint_id = ?1 AND revision = ?10 AND created_at = ?11)";
constexpr const char* kTotals =
    "UPDATE outbox_webhook_endpoints SET delivered_total = delivered_total + ?2 WHERE endpoint_id "
    "= "
    "?1 AND created_at = ?3";
// What an operator changed meanwhile stays, and one that has the id of another that is gone is not
// that one.
constexpr const char* kState =
    "UPDATE outbox_webhook_endpoints SET failing_since = nullif(?3, 0), failures = ?4, "
    "last_attempt_at = nullif(?5, 0), paused_until = nullif(?6, 0), last_status = nullif(?7, 0), "
    "last_error = nullif(?8, '') WHERE endpoint_id = ?1 AND revision = ?2 AND created_at = ?9";
constexpr const char* kDisable =
    "UPDATE outbox_webhook_endpoints SET state = 'disabled', reason = ?3, revision = revision + 1, "
    "updated_at = ?4 WHERE endpoint_id = ?1 AND revision = ?2 AND created_at = ?5";

std::string json_positions(const std::vector<webhook::Slice::Held>& held) {
    std::string out = "[";
    for (const webhook::Slice::Held& one : held) {
        if (out.size() > 1) out += ',';
        out += std::to_string(one.position);
    }
    return out + "]";
}

std::string json_texts(const std::vector<std::string>& texts) {
    std::string out = "[";
    for (const std::string& text : texts) {
        if (out.size() > 1) out += ',';
        append_json_string(text, out);
    }
    return out + "]";
}

class SqliteOutlet final : public webhook::Outlet {
  public:
    SqliteOutlet(std::string path, int busy_timeout_s)
        : path_(std::move(path)),
          busy_timeout_s_(busy_timeout_s),
          lease_(path_, busy_timeout_s * 1'000, kSource, kLease) {}

    Result<std::optional<std::uint64_t>> acquire(const std::string& owner,
                                                 std::chrono::milliseconds ttl) override {
        if (Status status = open(); !status.ok()) return status;
        return lease_.acquire(owner, ttl);
    }
    Result<bool> renew(std::uint64_t epoch, std::chrono::milliseconds ttl) override {
        return lease_.renew(epoch, ttl);
    }
    Status release(std::uint64_t epoch) override { return lease_.release(epoch); }

    Result<std::vector<webhook::Endpoint>> endpoints() override {
        if (Status status = open(); !status.ok()) return status;
        return read_endpoints(*database_);
    }

    Result<std::vector<webhook::Backlog>> backlog(
        std::span<const webhook::BacklogOf> endpoints) override {
        if (Status status = open(); !status.ok()) return status;
        Statement look(*database_, kBacklog);
        std::vector<webhook::Backlog> out;
        for (const webhook::BacklogOf& one : endpoints) {
            look.bind(std::string_view(one.endpoint_id)).bind(one.after);
            if (!look.step()) break;
            out.push_back({one.endpoint_id, look.integer(0) != 0, look.integer(1)});
            look.reset();
        }
        if (Status status = look.status(); !status.ok()) return status;
        return out;
    }

    Result<webhook::Read> fetch(std::span<const webhook::Slice> slices, const webhook::Due& when,
                                const webhook::MaxBytes& max,
                                std::vector<webhook::Delivery>& out) override {
        if (Status status = open(); !status.ok()) return status;
        if (Status status = look_at_life(slices); !status.ok()) return status;
        webhook::Read read{life_, 0, std::vector<webhook::Looked>(slices.size())};
        Statement due(*database_, std::string(kColumns) + kDue);
        Statement too_far(*database_, std::string(kColumns) + kTooFar);
        Statement fresh(*database_, std::string(kColumns) + kFresh);
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < slices.size() && bytes < max.of_all; ++i) {
            const webhook::Slice& slice = slices[i];
            const auto bound = look(slice, read.looked[i]);
            if (!bound.ok()) return bound.status();
            const std::string held = json_positions(slice.held);
            const std::string keys = json_texts(slice.without_keys);
            for (Statement* one : {&due, &too_far, &fresh}) {
                if (bytes >= max.of_all) break;
                const std::int64_t bounded_by = one == &due       ? when.now_us
                                                : one == &too_far ? when.latest_us
                                                                  : bound->after;
                one->bind(std::string_view(slice.endpoint_id)).bind(std::string_view(held));
                one->bind(std::string_view(keys)).bind(slice.revision).bind(slice.created_at_us);
                one->bind(bounded_by).bind(slice.max_rows);
                if (one == &fresh) one->bind(bound->last);
                bytes += SqliteOutlet::read(*one, slice.endpoint_id,
                                            std::min(max.of_endpoint, max.of_all - bytes), out);
                one->reset();
            }
        }
        if (Status status = due.status(); !status.ok()) return status;
        if (Status status = too_far.status(); !status.ok()) return status;
        if (Status status = fresh.status(); !status.ok()) return status;
        return read;
    }

    Result<std::vector<std::string>> record(
        std::uint64_t epoch, std::span<const webhook::Outcome> outcomes,
        std::span<const webhook::EndpointChange> changes) override {
        if (Status status = open(); !status.ok()) return status;
        WriteTransaction transaction(*database_);
        Status status = transaction.begin();
        if (status.ok()) status = require_lease(epoch);
        if (status.ok()) status = write(outcomes);
        if (status.ok()) status = write(changes);
        if (status.ok()) status = transaction.commit();
        // Who holds the file holds it from all endpoints: never kConflict.
        if (!status.ok()) return status;
        return std::vector<std::string>();
    }

    Result<std::vector<webhook::Count>> count(const std::string& endpoint_id, std::int64_t after,
                                              std::size_t max_rows) override {
        if (Status status = open(); !status.ok()) return status;
        Statement row(*database_, kCount);
        row.bind(std::string_view(endpoint_id)).bind(after).bind(max_rows);
        std::vector<webhook::Count> out;
        while (row.step()) {
            out.push_back({row.string(0), row.integer(1), row.integer(2), row.integer(3)});
        }
        if (Status status = row.status(); !status.ok()) return status;
        return out;
    }

    Result<std::int64_t> sweep(const std::string& endpoint_id) override {
        if (Status status = open(); !status.ok()) return status;
        Statement sweep(*database_,
                        "DELETE FROM outbox_webhook_deliveries WHERE position IN (SELECT position "
                        "FROM outbox_webhook_deliveries WHERE endpoint_id = ?1 AND NOT EXISTS "
                        "(SELECT 1 FROM outbox_webhook_endpoints WHERE endpoint_id = ?1) LIMIT " +
                            std::to_string(kSweptRows) + ")");
        sweep.bind(std::string_view(endpoint_id));
        const std::int64_t swept = sweep.changed();
        if (Status status = sweep.status(); !status.ok()) return status;
        return swept;
    }

  private:
    Status open() {
        if (database_ && !database_->has_moved()) return {};
        bool there = false;
        auto opened = open_webhook_file(path_, busy_timeout_s_, true, there);
        database_.reset();
        if (!opened.ok()) return opened.status();
        database_ = std::move(*opened);
        return database_->execute(kSession);
    }

    static std::size_t read(Statement& row, const std::string& endpoint, std::size_t max_bytes,
                            std::vector<webhook::Delivery>& out) {
        std::size_t bytes = 0;
        while (bytes < max_bytes && row.step()) {
            webhook::Delivery& delivery = out.emplace_back();
            delivery.endpoint_id = endpoint;
            delivery.position = row.integer(0);
            delivery.event_id = row.string(1);
            delivery.event_type = row.string(2);
            if (!row.text(3).empty()) delivery.key = row.string(3);
            delivery.headers = row.string(4);
            delivery.payload = row.string(5);
            delivery.occurred_at_us = row.integer(6);
            delivery.attempts = row.integer(7);
            delivery.first_failed_at_us = row.integer(8);
            delivery.next_attempt_at_us = row.integer(9);
            bytes += delivery.payload.size();
        }
        return bytes;
    }

    // Nothing says that positions began anew, but what there was does not fit any more.
    Status look_at_life(std::span<const webhook::Slice> slices) {
        Statement last(*database_, kLast);
        if (!last.step()) return last.status();
        bool fits = last.integer(0) >= last_;
        last_ = last.integer(0);
        Statement another(*database_, kAnother);
        for (const webhook::Slice& slice : slices) {
            for (const webhook::Slice::Held& one : slice.held) {
                another.bind(one.position).bind(std::string_view(slice.endpoint_id));
                another.bind(std::string_view(one.event_id));
                fits = !another.step() && fits;
                another.reset();
            }
        }
        if (!fits) ++life_;
        return another.status();
    }

    // Which fresh ones are read. Where none has failed that is from the beginning: nothing is in
    // the way, and nothing need be remembered.
    struct Bounds {
        std::int64_t after = 0;
        std::int64_t last = std::numeric_limits<std::int64_t>::max();
    };
    Result<Bounds> look(const webhook::Slice& slice, webhook::Looked& looked) {
        Statement fails(*database_, kFails);
        fails.bind(std::string_view(slice.endpoint_id));
        const bool some = fails.step() && fails.integer(0) != 0;
        if (Status status = fails.status(); !status.ok()) return status;
        if (!some && !slice.around) return Bounds();
        Statement rows(*database_, kLooked);
        rows.bind(std::string_view(slice.endpoint_id)).bind(slice.after);
        rows.bind(webhook::kMaxLookedAt);
        if (!rows.step()) return rows.status();
        looked = {rows.integer(0), rows.integer(1) >= std::int64_t{webhook::kMaxLookedAt}};
        return Bounds{slice.after, looked.position};
    }

    Status require_lease(std::uint64_t epoch) {
        Statement mine(*database_,
                       "SELECT 1 FROM outbox_webhook_lease WHERE source = ? AND epoch = ?");
        mine.bind(std::string_view(kSource)).bind(epoch);
        if (mine.step()) return {};
        if (Status status = mine.status(); !status.ok()) return status;
        return {ErrorCode::kLeaseLost, Advice::kStop,
                "another relay took the lease of webhooks after epoch " + std::to_string(epoch)};
    }

    Status write(std::span<const webhook::Outcome> outcomes) {
        Statement done(*database_, kDone);
        Statement failed(*database_, kFailed);
        for (const webhook::Outcome& outcome : outcomes) {
            const bool is_done = outcome.kind == webhook::Outcome::Kind::kDone;
            Statement& one = is_done ? done : failed;
            one.bind(std::string_view(outcome.endpoint_id))
                .bind(std::string_view(outcome.event_id));
            if (is_done) one.bind(outcome.position);
            if (!is_done) {
                one.bind(outcome.attempts).bind(outcome.first_failed_at_us);
                one.bind(outcome.next_attempt_at_us).bind(outcome.last_status);
                one.bind(std::string_view(outcome.last_error));
                one.bind(outcome.kind == webhook::Outcome::Kind::kDead ? 1 : 0);
                one.bind(outcome.position).bind(outcome.revision).bind(outcome.created_at_us);
            }
            if (Status status = one.run(); !status.ok()) return status;
            one.reset();
        }
        return {};
    }

    Status write(std::span<const webhook::EndpointChange> changes) {
        Statement totals(*database_, kTotals);
        Statement state(*database_, kState);
        Statement disable(*database_, kDisable);
        for (const webhook::EndpointChange& change : changes) {
            const std::string_view id = change.endpoint_id;
            totals.bind(id).bind(change.delivered).bind(change.created_at_us);
            if (Status status = totals.run(); !status.ok()) return status;
            totals.reset();
            state.bind(id).bind(change.revision).bind(change.failing_since_us);
            state.bind(change.failures).bind(change.last_attempt_at_us);
            state.bind(change.paused_until_us).bind(change.last_status);
            state.bind(std::string_view(change.last_error)).bind(change.created_at_us);
            if (Status status = state.run(); !status.ok()) return status;
            state.reset();
            if (!change.disabled_because) continue;
            disable.bind(id).bind(change.revision).bind(std::string_view(*change.disabled_because));
            disable.bind(now_us()).bind(change.created_at_us);
            if (Status status = disable.run(); !status.ok()) return status;
            disable.reset();
        }
        return {};
    }

    const std::string path_;
    const int busy_timeout_s_;
    SqliteLease lease_;
    std::unique_ptr<Database> database_;
    std::int64_t last_ = 0;  // position that was given
    std::int64_t life_ = 0;
};

}  // namespace

Result<std::unique_ptr<webhook::Outlet>> open_webhook_outlet(const webhook::StoreConfig& config) {
    auto path = webhook_path(config);
    if (!path.ok()) return path.error();
    return std::unique_ptr<webhook::Outlet>(
        std::make_unique<SqliteOutlet>(*std::move(path), config.connect_timeout_s));
}

}  // namespace outbox::sqlite
