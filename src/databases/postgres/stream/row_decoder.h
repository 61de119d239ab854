#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

#include "databases/postgres/source/decode.h"
#include "databases/postgres/source/table.h"
#include "databases/postgres/stream/pgoutput.h"
#include "databases/postgres/stream/table.h"
#include "databases/postgres/stream/value_text.h"

namespace outbox::postgres {

/// True where a value of this type, in the place of `column`, comes out as the table reader gives
/// it.
[[nodiscard]] bool can_stream(RowColumn column, WireType type);

/// The event field that a column of `select_list` holds.
[[nodiscard]] std::string_view field_name(RowColumn column);

/// Turns the inserts of one table into events, byte for byte as `PositionReader` reads the same
/// row. Pure; not thread-safe; allocates nothing per row once its buffers have grown.
///
/// Feed it every message of the stream in order: Relation and Type tell it how the rows behind them
/// look, so DDL in mid-stream is followed by the names of columns. The session of the stream must
/// run with client_encoding UTF8 and `binary 'true'`.
///
/// Errors end the stream, never the relay: the table holds every event. `kRetryDestination`: join
/// anew. `kStop` (code `kTableShape`): the table is no longer what was described (mapped column
/// gone or of an undecodable type, table renamed or replaced): join only after it was resolved and
/// described anew, and deliver by polling if that fails. `kTableShape` also for rows that the
/// reader refuses (no id, position below 1).
class RowDecoder {
  public:
    enum class Row : std::uint8_t {
        kNone,         ///< The message is no insert into the table; nothing was appended.
        kEvent,        ///< One event was appended; `position()` is its position.
        kOtherTenant,  ///< A row of a tenant not asked for, at `position()`: it is finished.
    };

    explicit RowDecoder(StreamTable table);

    /// Takes one message. After an error nothing was appended.
    Result<Row> decode(const pgoutput::Message& message, spi::EventBatch& out);

    /// Of the row that `decode` returned last.
    [[nodiscard]] spi::Position position() const { return position_; }

    /// The oid of the table, for what `decode` passes over (Truncate, Update, Delete).
    [[nodiscard]] std::uint32_t oid() const { return table_.oid; }

  private:
    static constexpr std::size_t kAbsent = ~std::size_t{0};
    struct Source {
        std::size_t at = kAbsent;  ///< Index among the values of a row.
        WireType type = WireType::kUnknown;
    };
    struct MetadataSource {
        Source source;
        std::string name;    ///< As in the catalog.
        std::string prefix;  ///< "name": as JSON
    };

    Status note_relation(const pgoutput::Message& message);
    void note_type(const pgoutput::Message& message);
    Status find_source(const pgoutput::Message& relation, const std::string& column,
                       RowColumn target, Source& source) const;
    Result<Row> decode_insert(const pgoutput::Message& message, spi::EventBatch& out);
    Status take_position(const pgoutput::Message& message);
    Status take_field(const pgoutput::Message& message, std::size_t column);
    Status take_metadata(const pgoutput::Message& message);
    [[nodiscard]] bool own_tenant() const;
    [[nodiscard]] std::string where() const;
    [[nodiscard]] ErrorInfo row_error(const std::string& column, const char* what) const;

    StreamTable table_;
    std::vector<MetadataSource> metadata_;
    bool known_ = false;  // a Relation message described the rows
    std::size_t row_columns_ = 0;
    std::array<Source, kAvailableAt + 1> sources_;
    RowLayout layout_;
    spi::Position position_ = 0;
    std::array<Field, kAllColumns> fields_;
    std::array<std::string, kAllColumns> texts_;  // of fields that are not sent as they are
    std::string json_;
};

}  // namespace outbox::postgres
