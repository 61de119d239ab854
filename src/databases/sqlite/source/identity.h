#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include <outbox/result.h>
#include <outbox/spi/position_set.h>

#include "core/mutex.h"
#include "databases/sqlite/client.h"
#include "databases/sqlite/source/table.h"

namespace outbox::sqlite {

/// What an owner of the lease wrote into its row last.
struct LeaseWritten {
    std::uint64_t epoch = 0;       ///< 0: none has it here.
    std::int64_t expires_us = 0;   ///< Unix epoch.
    std::int64_t acquired_us = 0;  ///< Tells owners apart, whose names may be equal.
};

/// Which state of its file a term works on. One that was restored in place, and got rows past where
/// the old one ended before anybody looked, is told by its lease, which is as it was before it was
/// last renewed, or another owner's by now, perhaps with the same epoch; and, where rows have
/// positions, by the last row that was read, in whose place another one is, and by the last one
/// that was removed, which is there again. Shared by the lease, the readers and the recorders;
/// thread-safe.
class Identity {
  public:
    explicit Identity(const Table& table);

    /// A renewal is about to write this: a clock that was set back is no older state.
    void lease_wanted(std::int64_t expires_us);
    void lease_written(const LeaseWritten& lease);

    /// Behind rows that were read, or in a transaction that writes. `kServerChanged`: an older
    /// state was restored, which holds for the rest of the term once anybody has seen it, as it may
    /// get past where the old one ended. `kLeaseLost`: another relay has it by now.
    Status check(Database& database) const;

    /// A term begins: of the table's positions nothing is known yet.
    void begin_term();
    /// A position that was read in this term, or is known to be finished.
    void reached(spi::Position position);
    /// A row that was read, behind a `check` that found nothing, and one whose removal is sure.
    void has_read(spi::Position position, std::string_view id);
    void has_removed(spi::Position position);
    /// `given`: the highest position that `table` has given so far. `kServerChanged` where more
    /// were reached: the table began anew, or an older state of it was restored, and it gives them
    /// out again. To be asked before anything is read or written, or nobody tells the old from the
    /// new. `reached`: what `highest_reached` said before `given` was read, as other readers get
    /// further meanwhile.
    Status check_given(const Table& table, spi::Position given, spi::Position reached) const;
    [[nodiscard]] spi::Position highest_reached() const {
        return reached_.load(std::memory_order_relaxed);
    }
    /// The same in a transaction that writes.
    Status check_given(const Table& table, Database& database) const;

  private:
    [[nodiscard]] Status changed() const;
    /// Returns `error`, which holds for the rest of the term.
    Status note_changed(ErrorInfo error) const;

    /// What this relay did to the file, and what another state of it has otherwise.
    struct Done {
        LeaseWritten lease;
        std::uint64_t times_lowered = 0;  ///< What the lease lasts to.
        spi::Position read = 0;           ///< The highest; 0: none.
        std::string read_id;
        spi::Position removed = 0;  ///< The last; 0: none.
    };
    [[nodiscard]] Done done() const;

    const bool has_positions_;
    const std::string sql_;
    mutable core::Mutex mutex_;
    Done done_ OUTBOX_GUARDED_BY(mutex_);
    mutable Status changed_ OUTBOX_GUARDED_BY(mutex_);
    std::atomic<spi::Position> reached_{0};
};

}  // namespace outbox::sqlite
