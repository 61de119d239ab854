#include "sources/postgres/removals.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>

#include "sources/postgres/decode.h"

namespace outbox::postgres {
namespace {

constexpr std::chrono::milliseconds kWaitMin{10};  // most commits are visible by then
constexpr std::chrono::milliseconds kWaitMax{1'000};
constexpr const char* kRemove = "outbox_remove";
constexpr const char* kRemoveFree = "outbox_remove_free";  // passes over rows that are held
constexpr const char* kLockTimeout = "55P03";

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
               " AS position) SELECT position FROM removed";
    };
    const Params types = Params().integers({}).text({});
    Status status = connection.prepare(kRemove, remove(" = ANY($1)"), types);
    if (!status.ok()) return status;
    return connection.prepare(kRemoveFree,
                              remove(" IN (SELECT " + position + " FROM " + table_.sql + " WHERE " +
                                     position + " = ANY($1) FOR UPDATE SKIP LOCKED)"),
                              types);
}

Result<spi::Removed> Removals::remove(Connection& connection, std::uint64_t epoch,
                                      std::span<const spi::Position> positions) {
    auto removed = try_remove(connection, epoch, positions, kRemove);
    if (removed.ok() || removed.error().backend_code != kLockTimeout) return removed;
    // Somebody holds one of the rows: that one alone waits.
    if (Status status = connection.execute("ROLLBACK"); !status.ok()) return status;
    return try_remove(connection, epoch, positions, kRemoveFree);
}

Result<spi::Removed> Removals::try_remove(Connection& connection, std::uint64_t epoch,
                                          std::span<const spi::Position> positions,
                                          const char* how) {
    const Positions unseen_before = unseen_.positions();
    const std::string life = identity_.life();
    Positions hit;
    Positions held;
    Positions gone;
    Status status = connection.execute("BEGIN");
    if (status.ok() && !positions.empty()) status = remove_rows(connection, how, positions, hit);
    std::sort(hit.begin(), hit.end());
    Positions missed;
    std::set_difference(positions.begin(), positions.end(), hit.begin(), hit.end(),
                        std::back_inserter(missed));
    const bool due = !unseen_before.empty() && Clock::now() >= next_;
    if (status.ok() && due) status = look_for_unseen(connection, hit, held, gone);
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
    unseen_.add(held);
    unseen_.add(missed);
    if (due) wait_ = hit.empty() ? std::min(wait_ * 2, kWaitMax) : kWaitMin;
    if (!missed.empty()) wait_ = kWaitMin;
    if (due || !missed.empty()) next_ = Clock::now() + wait_;
    return spi::Removed{std::move(hit), unseen_.size()};
}

Status Removals::remove_rows(Connection& connection, const char* how,
                             std::span<const spi::Position> positions, Positions& hit) {
    Status status =
        connection.start_prepared(how, Params().integers(positions).text(identity_.life()));
    std::array<Field, 1> fields;
    while (status.ok() && connection.next(fields, status)) {
        hit.push_back(decode_integer(fields[0]));
    }
    return status;
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

Status Removals::look_for_unseen(Connection& connection, Positions& hit, Positions& held,
                                 Positions& gone) {
    const auto writers = writers_.ask(connection);
    if (!writers.ok()) return writers.status();
    unseen_.writers_now(*writers);
    const Positions unseen = unseen_.positions();
    Positions found;
    Status status = remove_rows(connection, kRemoveFree, unseen, found);
    if (!status.ok()) return status;
    const auto there = present(connection, unseen);
    if (!there.ok()) return there.status();
    held = *there;
    hit.insert(hit.end(), found.begin(), found.end());
    found.insert(found.end(), held.begin(), held.end());
    std::sort(found.begin(), found.end());
    gone = unseen_.looked(found);
    return {};
}

}  // namespace outbox::postgres
