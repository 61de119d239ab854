#include "databases/postgres/record/removals.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>

#include "core/sql_text.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/record/halves.h"
#include "databases/postgres/record/refusal.h"
#include "databases/postgres/source/decode.h"

namespace outbox::postgres {
namespace {

constexpr std::chrono::milliseconds kWaitMin{10};  // most commits are visible by then
constexpr std::chrono::milliseconds kWaitMax{1'000};
constexpr std::size_t kTryKept = 50;  // at a time
constexpr std::chrono::milliseconds kTryKeptFor{500};
constexpr std::size_t kMaxRefused = 50'000;  // more stay until the next start: the ledger has them
constexpr const char* kRemove = "outbox_remove";
constexpr const char* kRemoveFree = "outbox_remove_free";  // passes over rows that are held
// To find the rows that the table does not let go.

}  // namespace

Removals::Removals(const Table& table, Identity& identity, const LedgerTable& ledger,
                   const Fence& fence)
    : table_(table), identity_(identity), ledger_(ledger), fence_(fence), writers_(table) {}

// Where the numbering began anew other events have these positions: nothing is removed then.
Status Removals::prepare(Connection& connection) {
    unseen_.forget_writers();
    const std::string position = quote_identifier(table_.position);
    const auto remove = [&](const std::string& which) {
        return "WITH removed AS (DELETE FROM " + table_.sql + " WHERE " + position + which +
               " AND (SELECT " + life_of(table_) + ") = $2 RETURNING " + position +
               " AS position) SELECT array_agg(position) FROM removed";
    };
    const Params types = Params().integers({}).text({});
    Status status = connection.prepare(kRemove, remove(" = ANY($1)"), types);
    if (!status.ok()) return status;
    remove_free_sql_ = remove(" IN (SELECT " + position + " FROM " + table_.sql + " WHERE " +
                              position + " = ANY($1) FOR UPDATE SKIP LOCKED)");
    return connection.prepare(kRemoveFree, remove_free_sql_, types);
}

Result<spi::Removed> Removals::remove(Connection& connection, std::uint64_t epoch,
                                      std::span<const spi::Position> positions) {
    if (kept_.empty()) {
        auto removed = try_remove(connection, epoch, positions, false);
        if (removed.ok() || !may_concern_rows(connection.handle(), removed.error())) return removed;
        // Somebody holds one of the rows, or a trigger or a key keeps it: that one alone waits.
        if (Status status = connection.execute("ROLLBACK"); !status.ok()) return status;
    }
    return try_remove(connection, epoch, positions, true);
}

Result<spi::Removed> Removals::try_remove(Connection& connection, std::uint64_t epoch,
                                          std::span<const spi::Position> positions, bool careful) {
    const Positions unseen_before = unseen_.positions();
    const std::string life = identity_.life();
    Positions hit;
    Positions held;
    Positions gone;
    refused_ = false;
    Status status = connection.execute(careful ? "BEGIN; SET CONSTRAINTS ALL IMMEDIATE" : "BEGIN");
    if (status.ok() && !positions.empty()) {
        status = careful ? remove_free(connection, positions, hit)
                         : remove_rows(connection, kRemove, positions, hit);
    }
    std::sort(hit.begin(), hit.end());
    Positions missed;
    std::set_difference(positions.begin(), positions.end(), hit.begin(), hit.end(),
                        std::back_inserter(missed));
    const bool due = !unseen_before.empty() && Clock::now() >= next_;
    if (status.ok() && due) status = look_for_unseen(connection, careful, hit, held, gone);
    if (status.ok() && (due || !missed.empty())) status = identity_.check_table(connection);
    if (status.ok()) {
        // Another life has other rows at these positions: nothing was learned.
        if (identity_.life() != life) gone.clear();
        hit.insert(hit.end(), gone.begin(), gone.end());
        std::vector<Connection::Statement> statements;
        ledger_.subtract(hit, statements);
        status = fence_.commit(connection, epoch, std::move(statements));
    }
    if (!status.ok()) {
        unseen_.add(unseen_before);
        return status;
    }
    // Of what the table was asked for alone, and keeps, so many are named again.
    std::size_t excess = kept_.size() - std::min(kept_.size(), kMaxRefused);
    const auto drop = [&](spi::Position position) {
        if (excess == 0 || kept_.erase(position) == 0) return false;
        --excess;
        return true;
    };
    std::erase_if(missed, drop);
    std::erase_if(held, drop);
    unseen_.add(held);
    unseen_.add(missed);
    if (due) wait_ = hit.empty() ? std::min(wait_ * 2, kWaitMax) : kWaitMin;
    if (wait_ < kWaitMin || (!missed.empty() && refusal_.empty())) wait_ = kWaitMin;
    if (due || !missed.empty()) next_ = Clock::now() + wait_;
    if (due && !refused_ && kept_.empty()) refusal_.clear();
    if (!kept_.empty()) {
        for (const spi::Position position : hit) kept_.erase(position);
    }
    return spi::Removed{std::move(hit), unseen_.size(), refusal_, kept_.size()};
}

Status Removals::remove_rows(Connection& connection, const char* how,
                             std::span<const spi::Position> positions, Positions& hit) {
    Status status =
        connection.start_prepared(how, Params().integers(positions).text(identity_.life()));
    std::array<Field, 1> fields;
    bool sound = true;
    // One row, whatever it removed: a result for each would cost more than the rest of the removal.
    while (status.ok() && connection.next(fields, status)) {
        sound = decode_integers(fields[0], hit) && sound;
    }
    if (!status.ok() || sound) return status;
    return {ErrorCode::kQueryFailed, Advice::kStop,
            "unexpected answer of the server: positions that were removed"};
}

Result<Removals::Positions> Removals::present(Connection& connection,
                                              std::span<const spi::Position> positions) {
    const std::string position = quote_identifier(table_.position);
    Result<Rows> rows = connection.query("SELECT " + position + " FROM " + table_.sql + " WHERE " +
                                             position + " = ANY($1) ORDER BY 1",
                                         Params().integers(positions));
    if (!rows.ok()) return rows.status();
    Positions out;
    for (int row = 0; row < rows->size(); ++row) out.push_back(rows->integer(row, 0));
    return out;
}

// Without those that somebody holds; where the table keeps some it is tried with one half and the
// other, until those are alone.
Status Removals::remove_free(Connection& connection, std::span<const spi::Position> positions,
                             Positions& hit) {
    Positions others;  // that are not known to be kept
    std::copy_if(positions.begin(), positions.end(), std::back_inserter(others),
                 [&](spi::Position position) { return !kept_.contains(position); });
    return in_halves(
        std::span<const spi::Position>(others),
        [&](std::span<const spi::Position> part) { return remove_part(connection, part, hit); },
        [&](spi::Position position) { kept_.insert(position); });
}

// Some of those that the table kept, and the next ones where it keeps none of these any more.
Status Removals::try_kept(Connection& connection, Positions& found) {
    const auto until = Clock::now() + kTryKeptFor;
    for (bool let_go = true; let_go && !kept_.empty() && Clock::now() < until;) {
        Positions some;
        for (auto it = kept_.upper_bound(tried_kept_); it != kept_.end() && some.size() < kTryKept;
             ++it) {
            some.push_back(*it);
        }
        tried_kept_ = some.size() < kTryKept ? 0 : some.back();
        for (const spi::Position position : some) kept_.erase(position);
        const std::size_t found_before = found.size();
        const Status status = remove_free(connection, some, found);
        if (!status.ok()) {
            kept_.insert(some.begin(), some.end());
            return status;
        }
        let_go = found.size() - found_before == some.size() && !some.empty();
    }
    return {};
}

// False: the table keeps some of them, and nothing was removed.
Result<bool> Removals::remove_part(Connection& connection, std::span<const spi::Position> part,
                                   Positions& hit) {
    Status status = connection.execute("SAVEPOINT outbox_rows");
    if (!status.ok()) return status;
    Positions removed;
    status = remove_rows(connection, kRemoveFree, part, removed);
    if (status.ok()) {
        hit.insert(hit.end(), removed.begin(), removed.end());
        status = connection.execute("RELEASE SAVEPOINT outbox_rows");
        if (!status.ok()) return status;
        return true;
    }
    if (!may_concern_rows(connection.handle(), status.error())) return status;
    const ErrorInfo error = status.error();
    status = connection.execute("ROLLBACK TO SAVEPOINT outbox_rows");
    if (!status.ok()) return status;
    if (!rows_are_to_blame(connection, error, remove_free_sql_,
                           Params().integers(part).text(identity_.life()))) {
        return error;
    }
    refused_ = true;
    refusal_ = words_of(error);
    return false;
}

// Those that nobody holds any more are removed now, or the table keeps them, if without a word.
Status Removals::look_for_kept(Connection& connection, Positions& held, Positions& found) {
    Positions others;  // than those of which is known why they stay
    std::copy_if(held.begin(), held.end(), std::back_inserter(others),
                 [&](spi::Position one) { return !kept_.contains(one); });
    if (others.empty()) return {};
    const std::string position = quote_identifier(table_.position);
    const Result<Rows> free = connection.query(
        "SELECT " + position + " FROM " + table_.sql + " WHERE " + position +
            " = ANY($1) AND (SELECT " + life_of(table_) + ") = $2 FOR UPDATE SKIP LOCKED",
        Params().integers(others).text(identity_.life()));
    if (!free.ok() || free->empty()) return free.status();
    Positions lockable;
    for (int row = 0; row < free->size(); ++row) lockable.push_back(free->integer(row, 0));
    Positions removed;
    Positions passed;  // without an error
    Status status = in_halves(
        std::span<const spi::Position>(lockable),
        [&](std::span<const spi::Position> part) {
            auto taken = remove_part(connection, part, removed);
            if (taken.ok() && *taken) passed.insert(passed.end(), part.begin(), part.end());
            return taken;
        },
        [&](spi::Position one) { kept_.insert(one); });
    if (!status.ok()) return status;
    std::sort(removed.begin(), removed.end());
    if (passed.size() > removed.size()) {
        if (!refused_) refusal_ = kKeptSilently;
        refused_ = true;
        std::sort(passed.begin(), passed.end());
        std::set_difference(passed.begin(), passed.end(), removed.begin(), removed.end(),
                            std::inserter(kept_, kept_.end()));
    }
    std::erase_if(held, [&](spi::Position one) {
        return std::binary_search(removed.begin(), removed.end(), one);
    });
    found.insert(found.end(), removed.begin(), removed.end());
    return {};
}

Status Removals::look_for_unseen(Connection& connection, bool careful, Positions& hit,
                                 Positions& held, Positions& gone) {
    const auto writers = writers_.ask(connection);
    if (!writers.ok()) return writers.status();
    unseen_.writers_now(*writers);
    const Positions unseen = unseen_.positions();
    Positions found;
    Status status = careful ? remove_free(connection, unseen, found)
                            : remove_rows(connection, kRemoveFree, unseen, found);
    if (status.ok() && careful) status = try_kept(connection, found);
    if (!status.ok()) return status;
    const auto there = present(connection, unseen);
    if (!there.ok()) return there.status();
    held = *there;
    status = look_for_kept(connection, held, found);
    if (!status.ok()) return status;
    hit.insert(hit.end(), found.begin(), found.end());
    found.insert(found.end(), held.begin(), held.end());
    std::sort(found.begin(), found.end());
    gone = unseen_.looked(found);
    // Where triggers keep the session from failing by itself; what is hidden is not gone.
    return gone.empty() ? Status() : connection.require_all_rows(all_rights_to(table_), table_.sql);
}

}  // namespace outbox::postgres
