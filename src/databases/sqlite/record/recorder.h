#pragma once

#include <compare>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include <outbox/spi/source.h>

#include "databases/sqlite/client.h"
#include "databases/sqlite/record/ledger.h"
#include "databases/sqlite/record/table_writer.h"
#include "databases/sqlite/source/identity.h"
#include "databases/sqlite/source/table.h"
#include "relay/position_map.h"

namespace outbox::sqlite {

/// `spi::Recorder` by a connection of its own. One thread's.
class SqliteRecorder final : public spi::Recorder {
  public:
    /// `positions` is shared with the source's readers; null where rows have positions.
    SqliteRecorder(const Table& table, Identity& identity,
                   std::shared_ptr<relay::PositionMap> positions);

    Result<spi::Beginning> begin(std::uint64_t epoch,
                                 std::span<const spi::RouteName> routes) override;
    Result<std::vector<std::string>> destinations(std::span<const std::string> routes) override;
    Status record(const spi::RecordBatch& batch) override;
    Result<spi::Removed> remove(std::uint64_t epoch,
                                std::span<const spi::Position> positions) override;
    Result<std::size_t> move_due(std::uint64_t epoch, std::size_t limit) override;
    Result<std::size_t> prune(std::chrono::seconds retention, std::size_t limit) override;
    Result<std::int64_t> prunable(std::chrono::seconds retention) override;
    Result<std::vector<spi::Delivery>> load_deliveries(std::string_view route) override;
    Result<std::vector<spi::DeadLetter>> load_redeliveries(std::string_view route,
                                                           std::int64_t after_dead_id,
                                                           std::size_t limit) override;
    Result<std::vector<spi::DeadKey>> load_dead_keys(std::string_view route) override;
    Result<std::vector<std::string>> load_paused_tenants() override;
    Result<spi::Position> tidy(std::uint64_t epoch) override;
    Status save_stats(std::uint64_t epoch, std::span<const spi::SavedStats> stats) override;
    Result<Stats> stats() override;

  private:
    static constexpr const char* kKeptSilently =
        "the table keeps rows as they are without an error; does a trigger of yours RAISE(IGNORE) "
        "for them?";
    /// Above, the backlog of a table whose rows go is the span.
    static constexpr std::int64_t kCountLimit = 20'000;

    /// Runs `work` in one write transaction; the connection is made anew after an error.
    template <typename Work>
    Status once(Work work);
    /// Runs `work`, again from its beginning where `owner_takes` asks for it (`undone_`).
    template <typename Work>
    Status transact(Work work);
    /// Goes on with the row at `at` up to the one at `to`, and counts `at` up.
    using Rows = std::function<Status(Database&, std::size_t& at, std::size_t to)>;
    /// Runs `rows` over so many. Where `owner_takes` asks for another beginning, what went well is
    /// committed before the next rows are tried: however many are refused, each is run a few times.
    /// Returns how many were tried within some time, at least one.
    Result<std::size_t> in_turn(std::size_t count, const Rows& rows);
    /// Runs a statement over one of the owner's rows, within `transact`. False: a trigger or a
    /// constraint of the owner's keeps the row from it (`refusal_`), or has ended the transaction
    /// over it before; nothing of it is left.
    /// `in_silence`: a statement that changes nothing, without an error, is taken.
    Result<bool> owner_takes(Database& database, Statement& statement, const std::string& row,
                             bool in_silence = true);
    /// As `owner_takes`, and false where the statement was kept from the row without a word.
    Result<bool> ends(Database& database, Statement& statement, const std::string& row);
    /// An error where this is not the lease's epoch any more, or the table not the one of the term.
    Status check_term(Database& database, std::uint64_t epoch) const;

    Status write_batch(Database& database, const spi::RecordBatch& batch);
    Status finish(Database& database, const spi::RecordBatch& batch);
    enum class How : std::uint8_t { kTaken, kPassed, kDead };
    Status end_row(Database& database, const std::string& route, const std::string& raw_id,
                   How how);
    Status owe(Database& database, const std::string& name) const;
    Status forget_state(Database& database, const spi::RecordBatch& batch) const;
    /// The sources that figures are of; more than one where the whole of a table was asked for, of
    /// which relays serve some tenants each.
    Result<std::vector<std::string>> sources_of_figures(Database& database) const;
    Result<spi::PositionSet> finished_in_any(Database& database,
                                             std::span<const std::string> sources) const;
    Status leave_out_finished(Database& database, const std::string& select,
                              std::span<const std::string> sources, Stats& stats) const;
    Status end_left_rows(Database& database);
    Status write_attempt(Database& database, const std::string& sql, spi::Position position,
                         std::uint32_t attempts, std::int64_t next_attempt_us,
                         const std::string& error);
    Status say_delivered(Database& database, std::int64_t dead_id);
    /// The name of an adopted table's row; none: nobody holds it any more.
    [[nodiscard]] std::optional<std::string> raw_id(spi::Position position) const;
    /// A position that was made up means nothing to the next process.
    void bind_position(Statement& statement, spi::Position position) const;
    Status add_failed(Database& database, const std::vector<spi::Delivery>& failed);
    Status add_dead(Database& database, const std::vector<spi::DeadLetter>& dead);
    [[nodiscard]] const std::string& route_name(std::size_t route) const { return routes_[route]; }
    Status settle_retries(Database& database, const spi::RecordBatch& batch);
    struct Due {
        std::int64_t available_at = 0;
        std::int64_t schedule_id = 0;
        auto operator<=>(const Due&) const = default;
    };
    Result<std::vector<Due>> due_now(Database& database, std::size_t limit) const;
    void refuse_due(const Due& due);
    Result<std::size_t> prune_singly(std::int64_t older_than, std::size_t limit,
                                     std::size_t removed);

    const Table table_;
    Identity& identity_;
    const TableWriter writer_;
    const Ledger ledger_;
    std::vector<std::string> routes_;  // as `begin` was given them
    // Shared by the readers of this source, which give and take positions.
    const std::shared_ptr<relay::PositionMap> positions_;
    Session session_;
    std::string refusal_;  // what the owner's table answered last to what it refused
    // Rows whose triggers end the transaction (RAISE(ROLLBACK)).
    std::unordered_set<std::string> undoing_;
    bool undone_ = false;
    // The table has refused a row: from then on each statement over one has a savepoint.
    bool refuses_ = false;
    std::chrono::steady_clock::time_point looked_for_deleted_{};
    spi::PositionSet to_remove_;  // named to `remove`, and not tried yet
    std::size_t kept_rows_ = 0;   // in this term
    std::string kept_for_;        // what the table said to the removal of rows that it keeps
    // Delayed events that were refused since all were tried last, but for those up to
    // `passed_due_`.
    std::unordered_set<std::int64_t> refused_due_;
    std::optional<Due> passed_due_;
    std::string due_refused_for_;
    std::chrono::steady_clock::time_point try_refused_due_{};
    // Of rows that are old enough to go: the last that was tried singly, and how many stayed.
    std::optional<std::int64_t> pruned_to_;
    std::size_t kept_ = 0;
};

}  // namespace outbox::sqlite
