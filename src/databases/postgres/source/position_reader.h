#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <outbox/spi/source.h>

#include "core/read_mark.h"
#include "databases/postgres/identity.h"
#include "databases/postgres/session.h"
#include "databases/postgres/source/config.h"
#include "databases/postgres/source/decode.h"
#include "databases/postgres/source/table.h"
#include "databases/postgres/source/writers.h"
#include "relay/ahead_thread.h"

namespace outbox::postgres {

[[nodiscard]] RowLayout layout_of(const Table& table);

/// Reads a table by position: above a mark, and in the holes below it, in one snapshot each time.
/// While a backlog is read, the next statement is worked off by a thread of its own while what the
/// last one returned is published; it ends by itself, so that no snapshot is held where nobody asks
/// for its rows. Its events are handed out before anything else is read.
class PositionReader final : public spi::Reader {
  public:
    /// `identity` is the source's and outlives the reader. Rows of `finished` are passed over.
    PositionReader(const PostgresSourceConfig& config, const Table& table, Identity& identity,
                   spi::PositionSet finished);

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override;
    Status fetch(std::span<const spi::Position> positions, spi::EventBatch& out) override;
    void forget(std::span<const spi::Position>) override {}

    /// Like one `read`, in the snapshot of a replication slot. `complete`: nothing that it shows is
    /// left unread. It may be older than the last read and so proves nothing about holes.
    Status read_snapshot(const std::string& snapshot, const spi::ReadLimits& limits,
                         spi::EventBatch& out, bool& complete);

    /// Whether the next `read` may begin another statement for the one behind it. What is read
    /// ahead must be handed out before a stream is joined, or tells of rows.
    void may_read_ahead(bool may) { may_read_ahead_ = may; }
    [[nodiscard]] bool has_read_ahead() const { return has_ahead_; }

    /// The last read left nothing.
    [[nodiscard]] bool at_end() const { return told_at_end_; }
    [[nodiscard]] const Table& table() const { return table_; }
    /// Those of the stream included. False while something is read ahead, which nothing is for a
    /// stream: what is read ahead was begun without holes.
    [[nodiscard]] bool has_holes() const { return !has_ahead_ && !mark_.holes().empty(); }
    /// For questions beside the reads.
    Result<Connection*> connection() { return session_.get(); }
    /// Looks whether the table is still the same, now and then.
    Status look_at_table();
    [[nodiscard]] bool may_advance() const { return mark_.may_advance(); }
    /// A row of the stream; true: it was not returned yet, and is to be.
    Result<bool> saw(spi::Position position);

  private:
    static constexpr std::size_t kSkimRows = 50'000;  // some 20 ms
    static constexpr std::size_t kCopyFromRows =
        100;  // below, planning a COPY costs more than it saves

    using Clock = std::chrono::steady_clock;

    Status prepare(Connection& connection);
    Status look_after_holes(Connection& connection);
    Status wait_until_settled(Connection& connection);
    Status look_below_mark(Connection& connection);
    Status look_at_types(Connection& connection);
    void set_bounds(const std::vector<spi::PositionRange>& ranges);
    Result<bool> skim(Connection& connection, const spi::ReadLimits& limits, spi::EventBatch& out);
    Status take_own(const spi::ReadLimits& limits, spi::EventBatch& out);
    Status take_own(std::span<const spi::Position> some, const spi::ReadLimits& limits,
                    spi::EventBatch& out);
    void forget_above(spi::Position position);
    bool bound_holes(std::size_t rows);
    [[nodiscard]] std::string skim_list(std::span<const std::string> tenants) const;
    Status start(Connection& connection, std::size_t limit, bool all_holes,
                 std::span<const std::string> aside);
    Status read_rows(const spi::ReadLimits& limits, bool all_holes, spi::EventBatch& out,
                     bool& complete);

    Status check_read();
    Status read_some(const spi::ReadLimits& limits, spi::EventBatch& out);
    Status read_now(const spi::ReadLimits& limits, spi::EventBatch& out);
    Status take_ahead(const spi::ReadLimits& limits, spi::EventBatch& out);
    void read_ahead(const spi::ReadLimits& limits);
    Result<bool> is_numbered(spi::Position position);
    Status leave_out_unnumbered(std::size_t events_before, spi::EventBatch& out, bool& cut);
    Result<bool> sees(spi::Position position);
    Status take_row(spi::Position position, spi::EventBatch& out);
    Status take_positions(Connection& connection, const spi::ReadLimits& limits, std::size_t events,
                          bool& cut);
    Status take_rows(Connection& connection, const spi::ReadLimits& limits, spi::EventBatch& out,
                     bool& cut);
    [[nodiscard]] std::string rows_sql(const std::string& select, const std::string& mark,
                                       const std::string& limit, const std::string& holes) const;
    void note_closed(const std::vector<spi::PositionRange>& closed);

    const Table table_;
    Identity& identity_;
    const std::string select_;
    const std::string own_;     // the condition of rows that are to be sent
    const std::string tenant_;  // whose a row is
    const WriterQuery writers_;
    const std::set<std::string> bytea_columns_;  // of payload and headers
    const RowLayout layout_;
    // Segments hold a position twice where somebody set the sequence back: then the same one
    // counts.
    const std::string in_order_;
    Session session_;  // of a read that is cut, what follows may get another connection
    core::ReadMark mark_;
    spi::PositionSet closed_;            // the newest closed holes, for the look below the mark
    spi::Position looked_below_to_ = 0;  // how far that look has come
    spi::Position covered_ = 0;          // by the statement that was started, if all of it comes
    RowSize row_size_;
    std::size_t skim_rows_;              // of what is set aside, that a statement asks for
    std::uint32_t reads_unskimmed_ = 0;  // that are to come
    std::uint32_t skim_again_after_ = 1;
    bool tells_table_ = false;          // the statement's rows do, behind their columns
    bool checked_ = false;              // and this is the same table
    spi::Position reached_before_ = 0;  // the statement was sent
    bool full_ = false;                 // the last statement returned all that it might
    bool bounded_ = false;              // it looked into a part of the holes alone
    bool holes_fill_ = false;           // it found many rows, so that a part of the holes is enough
    bool at_end_ = false;               // and this one did not: nothing is left
    std::vector<Field> fields_;         // of a row, and what the table is
    const std::span<Field> row_;
    std::vector<spi::Position> seen_;
    std::vector<spi::PositionRange> closed_now_;
    std::vector<spi::EventBatch::Aside> aside_now_;
    std::vector<spi::Position> own_positions_;       // of what is skimmed, to be sent
    std::vector<spi::PositionRange> ranges_;         // of the statement that was started
    std::vector<spi::PositionRange> closed_ranges_;  // of the look below
    std::vector<std::int64_t> lows_;
    std::vector<std::int64_t> highs_;
    Params params_;
    Clock::time_point holes_since_{};
    Clock::time_point writers_asked_{};
    Clock::time_point looked_below_ = Clock::now();
    Clock::time_point looked_at_table_{};
    spi::Position top_ = 0;          // the highest position returned
    spi::Position numbered_to_ = 0;  // the sequence gave this, when it was asked last

    // Of the caller's thread, while the other one has all of the above and the next two.
    bool may_read_ahead_ = true;
    bool has_ahead_ = false;       // something is read ahead, or was and is not handed out
    bool told_at_end_ = false;     // as of the last read
    std::size_t most_events_ = 0;  // that a read was asked for

    spi::EventBatch ahead_;
    std::vector<std::string> ahead_names_;  // whose events are to be set aside
    Status ahead_status_;
    std::size_t next_ahead_ = 0;
    relay::AheadThread thread_;  // last: it uses all of the above
};

}  // namespace outbox::postgres
