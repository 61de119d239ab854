#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <outbox/result.h>

namespace outbox::replay {

/// The table of runs, by a connection that is made again after it broke; and what the SQL of its
/// database says differently. One statement at a time, parameters $1, $2, ... as text, in the order
/// of their first use. Used by one thread.
class RunTable {
  public:
    using Row = std::vector<std::string>;  ///< NULL is an empty text.

    RunTable() = default;
    RunTable(const RunTable&) = delete;
    RunTable& operator=(const RunTable&) = delete;
    virtual ~RunTable() = default;

    virtual Result<std::vector<Row>> run(const std::string& sql,
                                         const std::vector<std::string>& parameters) = 0;
    /// The table's name in such a statement: "outbox_replays", "outbox_audit", ...
    [[nodiscard]] virtual std::string named(const std::string& table) const = 0;
    /// Now, and this many milliseconds (an SQL number) later, for a column of a time.
    [[nodiscard]] virtual std::string in_ms(const std::string& milliseconds) const = 0;
    /// A column of a time in microseconds since the Unix epoch.
    [[nodiscard]] virtual std::string us(const std::string& column) const = 0;
    /// A line of outbox_audit that names no events, with the values of these columns of it.
    [[nodiscard]] virtual std::string audit(const std::string& columns,
                                            const std::string& values) const = 0;
    /// False: outbox_replays is missing, so that there was no run. Makes nothing.
    virtual Result<bool> has_table() = 0;
    /// `kMigrationRefused` where outbox_replays is missing and cannot be made.
    virtual Status make_table() = 0;
};

}  // namespace outbox::replay
