#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "core/table_mapping.h"

namespace outbox {

/// What becomes of a row that every route has published.
enum class AfterPublish : std::uint8_t {
    kDefault,  ///< Mark where the table has a column for it, else delete.
    kDelete,
    kMark,
    kKeep,  ///< Rows stay, and go by whole segments of the table: `outbox migrate` makes those.
};

/// A column as far as every database tells it alike.
struct ColumnFacts {
    std::string name;
    bool is_time = false;  ///< May hold the time of the row.
};

/// How an outbox table is read and written, whatever the database: the configuration resolved
/// against the table's columns. Pure.
struct TableLayout {
    bool native = false;     ///< Made by `outbox migrate`.
    std::string preset;      ///< Name of the recognised shape; empty: native or free mapping.
    TableMapping mapping;    ///< With every field that the table has.
    std::string created_at;  ///< Column that tells a row's time; empty: none.
    bool mark = false;       ///< Published rows are marked, else deleted or kept.
    bool keep = false;       ///< Nothing is done with published rows; segments of them are emptied.
    /// A table of the user's own would lose its rows, and neither its shape nor the configuration
    /// says that it shall.
    bool deletes_unasked = false;

    [[nodiscard]] std::string column(const std::string& field) const;  ///< Empty: not there.
    [[nodiscard]] bool has(const std::string& field) const { return !column(field).empty(); }
    /// A column says whether a row is finished.
    [[nodiscard]] bool has_state() const;
    /// What to write where `deletes_unasked`; `table` as messages shall show it.
    [[nodiscard]] ErrorInfo deletion_refusal(const std::string& table) const;
};

/// Resolves `[source.table]`, the presets and `after_publish` against the columns that table
/// `name` (as messages shall show it) has. `segments`: it is laid out to keep its rows. Errors:
/// `kConfigInvalid`, `kTableShape`, each with what to write in outbox.toml.
Result<TableLayout> lay_out_table(const TableMapping& given, AfterPublish after_publish,
                                  std::span<const ColumnFacts> columns, const std::string& name,
                                  bool segments = false);

/// True for 8-4-4-4-12 hexadecimal digits. Ids that are no UUIDs get the table's name in front, so
/// that they are unique among all tables.
[[nodiscard]] bool looks_like_uuid(std::string_view text);

/// The longest id of an event; the inbox takes no longer one.
inline constexpr std::size_t kMaxIdBytes = 255;

/// The event's id for a raw one, `prefix` in front where it is no UUID. Where that is too long: a
/// digest (XXH3, 128 bits), by which the row's dead letter is known.
[[nodiscard]] std::string event_id(std::string_view prefix, std::string_view raw_id);

}  // namespace outbox
