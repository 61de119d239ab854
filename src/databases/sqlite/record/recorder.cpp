#include "databases/sqlite/record/recorder.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/utf8.h"
#include "databases/sqlite/errors.h"

namespace outbox::sqlite {
namespace {

constexpr std::size_t kMaxErrorBytes = 2'000;
constexpr std::size_t kMaxUndoing = 10'000;  // more are learned anew
constexpr std::size_t kMaxRemoved = 10'000;  // at once
constexpr std::chrono::milliseconds kTurn{500};
constexpr std::chrono::milliseconds kLetOthersWrite{1};
constexpr std::chrono::seconds kLookForDeletedEvery{60};

std::int64_t older_than(std::chrono::seconds retention) {
    return now_us() - std::chrono::microseconds(retention).count();
}

// Of a UUID or other hexadecimal text; what is none gives bytes that no id has.
std::string bytes_of_hex(std::string_view text) {
    std::string bytes;
    int high = -1;
    for (const char c : text) {
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) continue;
        if (high >= 0) bytes += static_cast<char>(high * 16 + digit);
        high = high >= 0 ? -1 : digit;
    }
    return bytes;
}

}  // namespace

SqliteRecorder::SqliteRecorder(const Table& table, Identity& identity,
                               std::shared_ptr<relay::PositionMap> positions)
    : table_(table),
      identity_(identity),
      writer_(table),
      ledger_(table_),
      positions_(std::move(positions)),
      session_(table.path, table.busy_timeout_ms) {}

std::optional<std::string> SqliteRecorder::raw_id(spi::Position position) const {
    std::vector<std::string> ids = positions_->raw_ids({&position, 1});
    return ids.empty() ? std::nullopt : std::optional(std::move(ids.front()));
}

void SqliteRecorder::bind_position(Statement& statement, spi::Position position) const {
    if (positions_ == nullptr) {
        statement.bind(position);
    } else {
        statement.bind_null();
    }
}

template <typename Work>
Status SqliteRecorder::once(Work work) {
    undone_ = false;
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    Status status;
    {
        WriteTransaction transaction(**database);
        status = transaction.begin();
        if (status.ok()) status = work(**database);
        if (status.ok()) status = transaction.commit();
    }
    if (!status.ok() && !undone_ && status.error().code != ErrorCode::kLeaseLost) session_.drop();
    return status;
}

template <typename Work>
Status SqliteRecorder::transact(Work work) {
    if (undoing_.size() > kMaxUndoing) undoing_.clear();
    Status status;
    do {  // each turn but the last knows one row more, or that rows are refused at all
        status = once(work);
    } while (undone_);
    return status;
}

Result<std::size_t> SqliteRecorder::in_turn(std::size_t count, const Rows& rows) {
    const auto until = std::chrono::steady_clock::now() + kTurn;
    auto others = std::exchange(undoing_, {});
    Status status;
    std::size_t done = 0;
    for (std::size_t to = count; done < count && status.ok();) {
        if (done > 0 && std::chrono::steady_clock::now() >= until) break;
        std::size_t at = done;
        status = once([&](Database& database) { return rows(database, at, to); });
        if (undone_) {
            status = {};
            to = at + 1;
            std::this_thread::sleep_for(kLetOthersWrite);
        } else {
            done = to;
            to = count;
        }
    }
    undoing_ = std::move(others);
    if (!status.ok()) return status;
    return done;
}

Result<bool> SqliteRecorder::owner_takes(Database& database, Statement& statement,
                                         const std::string& row, bool in_silence) {
    const bool undoes = undoing_.contains(row);
    Status status;
    if (!undoes && refuses_) status = database.execute("SAVEPOINT owners_row");
    if (!undoes && status.ok()) status = statement.run();
    statement.forget();
    if (undoes) return false;
    const bool left_out = status.ok() && !in_silence && database.changes() == 0;
    if (status.ok() && !left_out) {
        if (refuses_) status = database.execute("RELEASE owners_row");
        if (!status.ok()) return status;
        return true;
    }
    if (!left_out && !refuses_row(status.error())) return status;
    refusal_ = left_out ? kKeptSilently : status.error().message;
    if (refuses_ && database.in_transaction()) {
        status = database.execute("ROLLBACK TO owners_row; RELEASE owners_row");
        if (!status.ok()) return status;
        return false;
    }
    // All is begun anew: it was ended, or RAISE(FAIL) may have left what came before it.
    if (!database.in_transaction()) undoing_.insert(row);
    refuses_ = true;
    undone_ = true;
    return ErrorInfo{ErrorCode::kQueryFailed, Advice::kRetryEvent, {}, refusal_};
}

Result<bool> SqliteRecorder::ends(Database& database, Statement& statement,
                                  const std::string& row) {
    Result<bool> taken = owner_takes(database, statement, row);
    if (!taken.ok() || !*taken || database.changes() > 0) return taken;
    // Gone or finished by somebody else, or kept by a trigger with RAISE(IGNORE).
    Statement left(database, "SELECT 1 FROM " + table_.sql + " AS t WHERE " +
                                 (positions_ == nullptr ? "t.position = ?1"
                                                        : table_.quoted("id") + " = ?1 AND " +
                                                              any_unfinished(table_)));
    if (positions_ == nullptr) {
        left.bind(static_cast<std::int64_t>(std::stoll(row)));
    } else {
        bind_raw_id(left, row);
    }
    const bool there = left.step();
    if (Status status = left.status(); !status.ok()) return status;
    if (there) refusal_ = kKeptSilently;
    return !there;
}

Status SqliteRecorder::check_term(Database& database, std::uint64_t epoch) const {
    if (Status same = identity_.check(database); !same.ok()) return same;
    Statement row(database, "SELECT epoch FROM outbox_lease WHERE source = ?");
    row.bind(table_.source);
    const bool holds = row.step() && static_cast<std::uint64_t>(row.integer(0)) == epoch;
    if (Status status = row.status(); !status.ok()) return status;
    // What is due would become numbers of a table that began anew, and hide that it did.
    if (holds) return identity_.check_given(table_, database);
    return {ErrorCode::kLeaseLost, Advice::kStop, "",
            "another relay took the lease of " + table_.source + " after epoch " +
                std::to_string(epoch)};
}

Result<spi::Beginning> SqliteRecorder::begin(std::uint64_t epoch,
                                             std::span<const spi::RouteName> routes) {
    routes_.clear();
    to_remove_ = {};
    for (const spi::RouteName& route : routes) routes_.push_back(route.name);
    spi::Beginning beginning;
    Status status = transact([&](Database& database) -> Status {
        if (Status held = check_term(database, epoch); !held.ok()) return held;
        auto begun = ledger_.begin(database, routes);
        if (!begun.ok()) return begun.status();
        beginning = std::move(*begun);
        return positions_ == nullptr ? Status() : end_left_rows(database);
    });
    if (!status.ok()) return status;
    return beginning;
}

Result<std::vector<std::string>> SqliteRecorder::destinations(std::span<const std::string> routes) {
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    return ledger_.destinations(**database, routes);
}

Status SqliteRecorder::record(const spi::RecordBatch& batch) {
    if (batch.empty()) return {};
    return transact([&](Database& database) { return write_batch(database, batch); });
}

Status SqliteRecorder::write_batch(Database& database, const spi::RecordBatch& batch) {
    if (Status held = check_term(database, batch.epoch); !held.ok()) return held;
    // An attempt is written into the owner's row before the row's end.
    Status status = add_failed(database, batch.failed);
    if (status.ok()) status = add_dead(database, batch.dead);
    if (status.ok()) status = finish(database, batch);
    if (status.ok()) status = forget_state(database, batch);
    if (status.ok()) status = settle_retries(database, batch);
    for (const auto& [route, name] : batch.destinations) {
        if (status.ok()) status = ledger_.set_destination(database, route_name(route), name);
    }
    return status;
}

Status SqliteRecorder::finish(Database& database, const spi::RecordBatch& batch) {
    std::unordered_set<spi::Position> dead;
    for (const spi::DeadLetter& letter : batch.dead) dead.insert(letter.position);
    for (const spi::Finished& finished : batch.finished) {
        Status status;
        if (positions_ == nullptr) {
            status = ledger_.add(database, route_name(finished.route), finished);
        } else {
            const std::unordered_set<spi::Position> passed(finished.passed.begin(),
                                                           finished.passed.end());
            for (const spi::Position position : finished.positions) {
                const auto id = raw_id(position);
                if (!status.ok() || !id) continue;
                const How how = dead.contains(position)     ? How::kDead
                                : passed.contains(position) ? How::kPassed
                                                            : How::kTaken;
                status = end_row(database, route_name(finished.route), *id, how);
            }
        }
        if (!status.ok()) return status;
    }
    return {};
}

Result<spi::Removed> SqliteRecorder::remove(std::uint64_t epoch,
                                            std::span<const spi::Position> positions) {
    to_remove_.add(positions);
    std::vector<spi::Position> some;
    to_remove_.take_lowest(kMaxRemoved, some);
    std::vector<bool> ended(some.size());
    const auto tried =
        in_turn(some.size(), [&](Database& database, std::size_t& at, std::size_t to) -> Status {
            if (Status held = check_term(database, epoch); !held.ok()) return held;
            std::vector<spi::Position> gone;
            Statement row(database, writer_.published);
            for (; at < to; ++at) {
                row.bind(some[at]).bind(now_us());
                const Result<bool> end = ends(database, row, std::to_string(some[at]));
                if (!end.ok()) return end.status();
                ended[at] = *end;
                if (*end) gone.push_back(some[at]);
            }
            return ledger_.subtract(database, gone);
        });
    to_remove_.add(std::span(some).subspan(tried.ok() ? *tried : 0));
    if (!tried.ok()) return tried.status();
    spi::Removed removed;
    for (std::size_t at = 0; at < *tried; ++at) {
        if (ended[at]) {
            removed.positions.push_back(some[at]);
            if (!table_.mark) identity_.has_removed(some[at]);
        } else {
            kept_for_ = refusal_;  // it stays in the ledger; the next start tries again
            ++kept_rows_;
        }
    }
    removed.left = to_remove_.size();
    removed.refusal = kept_for_;
    removed.kept = kept_rows_;
    return removed;
}

// What is finished fails no longer; and a dead row that its owner set back and that is published
// now has no dead letter any more.
Status SqliteRecorder::forget_state(Database& database, const spi::RecordBatch& batch) const {
    Statement any(database,
                  "SELECT EXISTS (SELECT 1 FROM outbox_delivery WHERE source = ?1), EXISTS "
                  "(SELECT 1 FROM outbox_dead_letters WHERE source = ?1)");
    any.bind(table_.source);
    const bool failing = any.step() && any.integer(0) != 0;
    const bool letters = positions_ != nullptr && any.integer(1) != 0;
    if (Status status = any.status(); !status.ok()) return status;
    if (!failing && !letters) return {};
    std::set<std::pair<std::string_view, spi::Position>> dead;  // by route
    for (const spi::DeadLetter& one : batch.dead) dead.emplace(one.route, one.position);
    const std::string by = positions_ == nullptr ? "position" : "event_id";
    const std::string which = " = ? AND source = ? AND route = ?";
    Statement state(database, "DELETE FROM outbox_delivery WHERE " + by + which);
    Statement letter(database, "DELETE FROM outbox_dead_letters WHERE id" + which);
    for (const spi::Finished& finished : batch.finished) {
        const std::string& route = route_name(finished.route);
        for (const spi::Position position : finished.positions) {
            Status done;
            if (positions_ == nullptr) {
                done = state.bind(position).bind(table_.source).bind(route).run();
            } else if (const auto id = raw_id(position)) {
                const std::string event_id = event_id_of(table_, *id);
                done = state.bind(event_id).bind(table_.source).bind(route).run();
                if (done.ok() && letters && !dead.contains({route, position})) {
                    done = letter.bind(event_id).bind(table_.source).bind(route).run();
                }
            }
            if (!done.ok()) return done;
        }
    }
    return {};
}

// The owner's columns, where the table has them.
Status SqliteRecorder::write_attempt(Database& database, const std::string& sql,
                                     spi::Position position, std::uint32_t attempts,
                                     std::int64_t next_attempt_us, const std::string& error) {
    if (sql.empty() || positions_ == nullptr) return {};
    const auto id = raw_id(position);
    if (!id) return {};
    Statement update(database, sql);
    bind_raw_id(update, *id);
    update.bind(static_cast<std::int64_t>(attempts)).bind(next_attempt_us);
    update.bind(to_storable_text(error, kMaxErrorBytes));
    return owner_takes(database, update, *id).status();
}

Status SqliteRecorder::add_failed(Database& database, const std::vector<spi::Delivery>& failed) {
    if (failed.empty()) return {};
    Statement upsert(
        database,
        "INSERT INTO outbox_delivery (source, route, event_id, position, key, attempts, "
        "next_attempt_at, error_code, last_error, first_failed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, "
        "?, ?) ON CONFLICT (source, route, event_id) DO UPDATE SET position = excluded.position, "
        "attempts = excluded.attempts, next_attempt_at = excluded.next_attempt_at, "
        "error_code = excluded.error_code, last_error = excluded.last_error");
    for (const spi::Delivery& delivery : failed) {
        upsert.bind(table_.source).bind(delivery.route).bind(delivery.event_id);
        bind_position(upsert, delivery.position);
        upsert.bind(delivery.key);
        upsert.bind(static_cast<std::int64_t>(delivery.attempts)).bind(delivery.next_attempt_us);
        upsert.bind(delivery.error_code).bind(to_storable_text(delivery.error, kMaxErrorBytes));
        Status status = upsert.bind(now_us()).run();
        if (status.ok()) {
            status = write_attempt(database, writer_.attempt, delivery.position, delivery.attempts,
                                   delivery.next_attempt_us, delivery.error);
        }
        if (!status.ok()) return status;
    }
    return {};
}

Status SqliteRecorder::add_dead(Database& database, const std::vector<spi::DeadLetter>& dead) {
    if (dead.empty()) return {};
    Statement insert(
        database,
        "INSERT INTO outbox_dead_letters (source, route, position, id, aggregate_type, "
        "aggregate_id, event_type, payload, headers, metadata, tenant_id, schema_id, "
        "schema_version, occurred_at, topic, key, routing_key, attempts, error_code, error, "
        "unmatched, died_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
        "?, "
        "?) "
        "ON CONFLICT (source, route, id, coalesce(position, 0)) DO UPDATE SET "
        "aggregate_type = excluded.aggregate_type, aggregate_id = excluded.aggregate_id, "
        "event_type = excluded.event_type, payload = excluded.payload, "
        "headers = excluded.headers, metadata = excluded.metadata, "
        "tenant_id = excluded.tenant_id, schema_id = excluded.schema_id, "
        "schema_version = excluded.schema_version, occurred_at = excluded.occurred_at, "
        "topic = excluded.topic, key = excluded.key, routing_key = excluded.routing_key, "
        "attempts = excluded.attempts, error_code = excluded.error_code, error = excluded.error, "
        "unmatched = excluded.unmatched, died_at = excluded.died_at, retry_requested_at = NULL");
    Statement forget(database,
                     "DELETE FROM outbox_delivery WHERE source = ? AND route = ? AND event_id = ?");
    for (const spi::DeadLetter& letter : dead) {
        if (letter.event.empty()) continue;
        const spi::EventView& event = letter.event.events().front();
        insert.bind(table_.source).bind(letter.route);
        bind_position(insert, letter.position);
        insert.bind(event.id);
        insert.bind(event.aggregate_type).bind(event.aggregate_id).bind(event.event_type);
        insert.bind_blob(event.payload).bind(event.headers).bind(event.metadata);
        insert.bind(event.tenant_id).bind(event.schema_id).bind(event.schema_version);
        insert.bind(event.occurred_at_us).bind(event.topic).bind(event.key);
        insert.bind(event.routing_key).bind(static_cast<std::int64_t>(letter.attempts));
        insert.bind(letter.error_code).bind(to_storable_text(letter.error, kMaxErrorBytes));
        insert.bind(std::int64_t{letter.unmatched});
        Status status = insert.bind(now_us()).run();
        if (status.ok()) {
            status = forget.bind(table_.source).bind(letter.route).bind(event.id).run();
        }
        if (status.ok()) {
            status = write_attempt(database, writer_.last_attempt, letter.position, letter.attempts,
                                   0, letter.error);
        }
        if (!status.ok()) return status;
    }
    return {};
}

Status SqliteRecorder::settle_retries(Database& database, const spi::RecordBatch& batch) {
    Statement remove(database, "DELETE FROM outbox_dead_letters WHERE dead_id = ? AND source = ?");
    for (const std::int64_t dead_id : batch.redelivered) {
        if (Status status = say_delivered(database, dead_id); !status.ok()) return status;
        if (Status status = remove.bind(dead_id).bind(table_.source).run(); !status.ok()) {
            return status;
        }
    }
    Statement update(database,
                     "UPDATE outbox_dead_letters SET attempts = ?, error_code = ?, error = ?, "
                     "died_at = ?, retry_requested_at = NULL WHERE dead_id = ? AND source = ?");
    for (const spi::Delivery& failed : batch.failed_again) {
        update.bind(static_cast<std::int64_t>(failed.attempts)).bind(failed.error_code);
        update.bind(to_storable_text(failed.error, kMaxErrorBytes)).bind(now_us());
        Status status = update.bind(failed.position).bind(table_.source).run();
        if (!status.ok()) return status;
    }
    return remove.status();
}

// The owner's row says so when the last of its dead letters was delivered after all.
Status SqliteRecorder::say_delivered(Database& database, std::int64_t dead_id) {
    if (writer_.redelivered.empty()) return {};
    Statement letter(database,
                     "SELECT id FROM outbox_dead_letters l WHERE dead_id = ? AND source = ? AND "
                     "NOT EXISTS (SELECT 1 FROM outbox_dead_letters o WHERE o.source = l.source "
                     "AND o.id = l.id AND o.dead_id <> l.dead_id)");
    letter.bind(dead_id).bind(table_.source);
    if (!letter.step()) return letter.status();
    std::string id = letter.string(0);
    if (id.starts_with(table_.id_prefix())) id.erase(0, table_.id_prefix().size());
    Statement update(database, writer_.redelivered);
    update.bind(id).bind_blob(bytes_of_hex(id)).bind(now_us());
    return owner_takes(database, update, id).status();
}

Result<std::size_t> SqliteRecorder::prune(std::chrono::seconds retention, std::size_t limit) {
    if (writer_.prune.empty()) return std::size_t{0};
    std::size_t removed = 0;
    if (!pruned_to_) {
        const auto tried =
            in_turn(1, [&](Database& database, std::size_t& at, std::size_t to) -> Status {
                removed = 0;
                for (; at < to; ++at) {
                    Statement all(database, writer_.prune);
                    all.bind(older_than(retention)).bind(limit);
                    const Result<bool> taken = owner_takes(database, all, "prune");
                    if (!taken.ok()) return taken.status();
                    removed = *taken ? static_cast<std::size_t>(database.changes()) : 0;
                }
                return {};
            });
        if (!tried.ok()) return tried.status();
        if (removed == limit) return removed;
    }
    return prune_singly(older_than(retention), limit, removed);
}

// A row that its table keeps is passed over: the next ones are others, until all have been tried.
Result<std::size_t> SqliteRecorder::prune_singly(std::int64_t older_than, std::size_t limit,
                                                 std::size_t removed) {
    while (removed < limit) {
        const Result<Database*> database = session_.get();
        if (!database.ok()) return database.status();
        std::vector<std::string> ids;
        std::vector<std::int64_t> places;
        {
            Statement rows(**database, writer_.prunable_ids);
            rows.bind(older_than);
            rows.bind(pruned_to_.value_or(std::numeric_limits<std::int64_t>::min()));
            rows.bind(limit - removed);
            while (rows.step()) {
                ids.push_back(raw_id_of(rows, 0, 1));
                places.push_back(rows.integer(2));
            }
            if (Status status = rows.status(); !status.ok()) return status;
        }
        if (ids.empty()) break;
        std::vector<bool> gone(ids.size());
        const auto tried =
            in_turn(ids.size(), [&](Database& writer, std::size_t& at, std::size_t to) -> Status {
                Statement one(writer, writer_.prune_one);
                for (; at < to; ++at) {
                    bind_raw_id(one.bind(older_than), ids[at]);
                    const Result<bool> taken = owner_takes(writer, one, ids[at]);
                    if (!taken.ok()) return taken.status();
                    gone[at] = *taken && writer.changes() > 0;
                    if (*taken && !gone[at]) refusal_ = kKeptSilently;
                }
                return {};
            });
        if (!tried.ok()) return tried.status();
        pruned_to_ = places[*tried - 1];
        const auto went = static_cast<std::size_t>(
            std::count(gone.begin(), gone.begin() + static_cast<std::ptrdiff_t>(*tried), true));
        removed += went;
        kept_ += *tried - went;
    }
    if (removed == limit) return removed;
    pruned_to_.reset();
    const std::size_t kept = std::exchange(kept_, 0);
    if (removed > 0 || kept == 0) return removed;
    return ErrorInfo{
        ErrorCode::kQueryFailed,
        Advice::kRetryEvent,
        {},
        "the table keeps " + std::to_string(kept) + " rows that are old enough to go: " + refusal_};
}

Result<spi::Position> SqliteRecorder::tidy(std::uint64_t epoch) {
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_for_deleted_ < kLookForDeletedEvery) return spi::Position{0};
    looked_for_deleted_ = now;
    const auto figures = stats();
    const bool fails = figures.ok() && figures->failing > 0 && figures->backlog <= kCountLimit;
    if (!fails && positions_ != nullptr) return spi::Position{0};
    spi::Position lowest = 0;
    Status status = transact([&](Database& database) -> Status {
        if (Status held = check_term(database, epoch); !held.ok()) return held;
        if (positions_ == nullptr) {
            auto forgotten = ledger_.forget_below_rows(database);
            if (!forgotten.ok()) return forgotten.status();
            lowest = *forgotten;
        }
        if (!fails) return {};
        Statement remove(database, writer_.deleted);
        return remove.bind(table_.source).run();
    });
    if (!status.ok()) return status;
    return lowest;
}

Result<std::int64_t> SqliteRecorder::prunable(std::chrono::seconds retention) {
    if (writer_.prunable.empty()) return std::int64_t{0};
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    Statement count(**database, writer_.prunable);
    count.bind(older_than(retention));
    const std::int64_t rows = count.step() ? count.integer(0) : 0;
    if (Status status = count.status(); !status.ok()) return status;
    return rows;
}

Status SqliteRecorder::save_stats(std::uint64_t epoch, std::span<const spi::SavedStats> stats) {
    if (stats.empty()) return {};
    return transact([&](Database& database) -> Status {
        if (Status held = check_term(database, epoch); !held.ok()) return held;
        Statement upsert(
            database,
            "INSERT INTO outbox_route_stats AS s (source, route, published_total, dead_total, "
            "circuit, last_error, rate_per_s, path, path_reason, updated_at, last_error_at) VALUES "
            "(?, ?, ?, ?, ?, nullif(?, ''), ?, ?, ?, ?, nullif(?, 0)) ON CONFLICT (source, route) "
            "DO UPDATE SET "
            "published_total = s.published_total + "
            "excluded.published_total, dead_total = s.dead_total + excluded.dead_total, circuit = "
            "excluded.circuit, last_error = coalesce(excluded.last_error, s.last_error), "
            "last_error_at = coalesce(excluded.last_error_at, s.last_error_at), "
            "rate_per_s = excluded.rate_per_s, path = excluded.path, path_reason = "
            "excluded.path_reason, updated_at = excluded.updated_at");
        for (const spi::SavedStats& one : stats) {
            upsert.bind(table_.source).bind(one.route);
            upsert.bind(static_cast<std::int64_t>(one.published));
            upsert.bind(static_cast<std::int64_t>(one.dead)).bind(one.circuit);
            upsert.bind(to_storable_text(one.last_error, kMaxErrorBytes)).bind(one.rate_per_s);
            upsert.bind(one.path.path).bind(one.path.reason);
            upsert.bind(now_us()).bind(one.last_error_at_us);
            if (Status status = upsert.run(); !status.ok()) return status;
        }
        return {};
    });
}

}  // namespace outbox::sqlite
