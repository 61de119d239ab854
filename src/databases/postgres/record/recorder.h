#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <outbox/spi/source.h>

#include "databases/postgres/identity.h"
#include "databases/postgres/record/fence.h"
#include "databases/postgres/record/ledger.h"
#include "databases/postgres/record/removals.h"
#include "databases/postgres/record/segments.h"
#include "databases/postgres/record/table_writer.h"
#include "databases/postgres/session.h"
#include "databases/postgres/source/config.h"
#include "databases/postgres/source/table.h"
#include "relay/position_map.h"

namespace outbox::postgres {

/// `spi::Recorder` by a session of its own, which is made anew after an error. One thread's.
class PostgresRecorder final : public spi::Recorder {
  public:
    /// `positions` is shared with the source's readers; null where positions are stable.
    PostgresRecorder(const PostgresSourceConfig& config, const Table& table, Identity& identity,
                     std::shared_ptr<relay::PositionMap> positions);

    Result<spi::Beginning> begin(std::uint64_t epoch,
                                 std::span<const spi::RouteName> routes) override;
    Result<std::vector<std::string>> destinations(std::span<const std::string> routes) override;
    Status record(const spi::RecordBatch& batch) override;
    Result<spi::Removed> remove(std::uint64_t epoch,
                                std::span<const spi::Position> positions) override;
    Result<spi::Position> tidy(std::uint64_t epoch) override;
    Result<std::size_t> move_due(std::uint64_t epoch, std::size_t limit) override;
    Result<std::size_t> prune(std::chrono::seconds retention, std::size_t limit) override;
    Result<std::int64_t> prunable(std::chrono::seconds retention) override;
    Result<std::vector<spi::Delivery>> load_deliveries(std::string_view route) override;
    Result<std::vector<spi::DeadLetter>> load_redeliveries(std::string_view route,
                                                           std::int64_t after_dead_id,
                                                           std::size_t limit) override;
    Result<std::vector<spi::DeadKey>> load_dead_keys(std::string_view route) override;
    Result<std::vector<std::string>> load_paused_tenants() override;
    Status save_stats(std::uint64_t epoch, std::span<const spi::SavedStats> stats) override;
    Result<Stats> stats() override;

  private:
    using Statement = Connection::Statement;
    using Clock = std::chrono::steady_clock;
    using Ending = Statement (TableWriter::*)(const std::vector<std::string>&, bool) const;
    struct Writing {
        std::vector<Statement> ours;
        std::vector<Statement> owners;  // on the outbox table itself
    };

    [[nodiscard]] TableWriter::Keys keys_of(std::span<const spi::Position> positions) const;
    [[nodiscard]] std::string storable(std::string_view text) const;
    [[nodiscard]] std::string event_id_of(const std::string& raw_id) const;
    [[nodiscard]] std::optional<spi::Position> stable_position(spi::Position position) const;
    [[nodiscard]] const std::string& route_name(std::size_t route) const { return routes_[route]; }
    Status note_finished(Connection& connection, const spi::RecordBatch& batch);
    Status finish_beginning(Connection& connection, std::uint64_t epoch, const Status& begun) const;
    Status learn_failing(Connection& connection, std::uint64_t epoch);
    void forget_failing(const spi::Finished& finished, const TableWriter::Keys& keys,
                        std::vector<Statement>& out);
    void add_failed(const spi::Delivery& failed, bool careful, Writing& out);
    void add_dead(const spi::DeadLetter& dead, bool careful, Writing& out);
    void add_failed_again(const spi::RecordBatch& batch, std::vector<Statement>& out) const;
    Status write(Connection& connection, const spi::RecordBatch& batch, bool careful);
    Status write_owners(Connection& connection, const spi::RecordBatch& batch,
                        std::span<const Statement> owners);
    Result<bool> owner_takes(Connection& connection, const Statement& statement,
                             std::unordered_set<std::string>* ids);
    Status end_rows(Connection& connection, const spi::RecordBatch& batch, bool careful);
    Result<std::vector<std::string>> finished_by_all(Connection& connection,
                                                     std::vector<std::string> raw_ids);
    Result<std::size_t> mark(Connection& connection, std::vector<std::string> raw_ids,
                             bool careful);
    Status mark_as(Connection& connection, std::vector<std::string> raw_ids, Ending ending,
                   bool careful, std::unordered_set<std::string>& marked);
    Status end_owed(std::uint64_t epoch);
    Status prune_free(Connection& connection, std::chrono::seconds retention, std::size_t limit,
                      std::size_t& removed);
    static std::string move_due_sql(const Table& table);
    struct DuePlace {
        std::string available_at = "-infinity";
        std::int64_t schedule_id = std::numeric_limits<std::int64_t>::min();
    };
    // Delayed events behind one place and up to another.
    struct DueLook {
        DuePlace after;
        DuePlace until{"infinity", std::numeric_limits<std::int64_t>::max()};
        std::vector<std::int64_t> except = {};  // as the outbox table refused them alone
    };
    using RefusesDue = std::function<void(DuePlace)>;
    [[nodiscard]] Params due_params(const DueLook& look, std::uint64_t epoch,
                                    std::size_t limit) const;
    // The ends of SELECTs whose rows, aliased t, are not finished.
    struct Unfinished {
        std::string rows;
        std::string oldest;
    };
    // What is told where counting takes too long: about as many as the planner takes `rows` to
    // have, less what the expression `less` counts; or what `count` does. `oldest` is as above.
    struct Roughly {
        std::string rows;
        std::string less = "0";
        std::string count = {};
        std::string oldest = {};
    };
    Result<Stats> stats_of(const std::string& with, const std::vector<Unfinished>& parts,
                           const Roughly& roughly, bool apart);
    Status estimate(const std::string& with, const Roughly& roughly, bool in_time, Stats& stats);
    [[nodiscard]] std::string age_of(const std::vector<std::string>& oldest) const;
    Result<Stats> stats_of_kept(bool apart);
    Status leave_out_finished(Stats& stats, bool first, bool apart);
    Result<bool> tenants_are_served_apart();
    [[nodiscard]] std::string unsent_rows() const;
    Status look_outside(Stats& stats);
    Status forget_deleted(Connection& connection, std::uint64_t epoch);
    Result<std::size_t> move_refused(std::uint64_t epoch, std::size_t limit);
    Result<std::optional<std::size_t>> move_some(const DueLook& look, std::uint64_t epoch,
                                                 std::size_t limit);
    Result<std::optional<DuePlace>> oldest_due(const DueLook& look);
    Result<std::size_t> move_of(const DueLook& look, std::uint64_t epoch, std::size_t limit,
                                const RefusesDue& refuses);
    Result<Connection*> connection_to_write();
    Result<Rows> query(const std::string& sql, const Params& params);
    Result<std::optional<Rows>> query_within(const std::string& limit, const std::string& sql,
                                             const Params& params);

    const Table table_;
    Identity& identity_;
    const bool serves_all_;                  ///< Whatever their tenant.
    const std::string tenants_;              ///< " AND ..." for the tenants of this source.
    const std::vector<std::string> owners_;  // roles that may own our tables
    const std::string move_due_sql_;
    TableWriter writer_;
    // Shared by the readers of this source, which give and take positions.
    std::shared_ptr<relay::PositionMap> positions_;
    LedgerTable ledger_;
    const Fence fence_;
    Session session_;
    std::optional<Removals> removals_;                           // none where positions are made up
    std::optional<Segments> segments_;                           // of a table that keeps its rows
    std::vector<std::string> routes_;                            // as `begin` was given them
    std::map<std::string, spi::Position, std::less<>> settled_;  // of routes, as it was saved
    // Events that have rows in outbox_delivery, by route, so that others cost no look there.
    std::optional<std::uint64_t> failing_epoch_;
    struct Failing {
        std::unordered_set<spi::Position> positions;
        std::unordered_set<std::string> ids;
    };
    std::unordered_map<std::string, Failing> failing_;
    bool keeps_utf8_ = true;  // as the last connection said
    bool can_write_ = false;  // what records and removes is prepared
    bool has_dead_ = false;   // there may be dead letters
    std::optional<Stats> last_stats_;
    bool looked_ = false;  // for the figures
    std::string refusal_;  // what the owner's table answered last to what it refused
    std::unordered_set<std::string> kept_;  // rows that `prune` found to stay, until the next start
    std::optional<std::string> pruned_to_;  // the look at what may be pruned goes on behind this id
    ErrorInfo kept_for_{ErrorCode::kQueryFailed, Advice::kRetryEvent, {}, {}};
    DueLook due_;
    Clock::time_point try_refused_due_{};
    DueLook refused_due_;             // up to where `due_` begins, with what was refused there
    std::size_t refused_before_ = 0;  // so many
    std::size_t refused_again_ = 0;
    bool refused_moved_ = false;  // some of them, in this round
    Clock::time_point next_refused_due_{};
    std::string due_refusal_;  // what the outbox table answered last to a delayed event
    std::string owed_after_;   // the look at what rows are owed goes on behind this one
    Clock::time_point next_owed_{};
    std::chrono::milliseconds owed_wait_{};
    Clock::time_point looked_for_deleted_{};
    Clock::time_point looked_for_lowest_{};
    spi::Position lowest_ = 0;
};

}  // namespace outbox::postgres
