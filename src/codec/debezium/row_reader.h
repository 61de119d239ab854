#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>
#include <outbox/spi/row_shape.h>

#include "codec/debezium/connect_column.h"

namespace outbox::codec::debezium {

/// Finds the values of columns in events: in the fields that they are mapped to, or in the metadata
/// with `metadata_as = "text"`.
class RowReader {
  public:
    /// Errors: kConfigInvalid for a column that the relay does not read, or of an unknown type.
    static Result<RowReader> make(const spi::RowShape& shape, const Options& options,
                                  const std::vector<std::string>& columns);

    /// Null where the table has no such column.
    [[nodiscard]] const ConnectColumn* column(std::string_view name) const;

    /// Makes the values of the next event known. False: the metadata is not what it should be.
    [[nodiscard]] bool load(const spi::EventView& event, spi::EventBatch& arena);

    /// A column whose value the event lacks, as its row was read when that was not asked for: a
    /// dead letter of a former configuration. Null: there is none. Valid until `load`.
    [[nodiscard]] const ConnectColumn* not_read() const { return not_read_; }

    /// The value of a column that is there, its default in place of NULL. Valid until `load`.
    [[nodiscard]] const ColumnValue& value(const ConnectColumn& column) const;

  private:
    struct Place {
        ConnectColumn column;
        std::string_view spi::EventView::* field = nullptr;  ///< Null: in the metadata.
        bool is_id = false;
        bool is_payload = false;
        bool is_read = false;  ///< With the row of the event that was loaded, if only as NULL.
        ColumnValue value;
    };

    Status add(const spi::RowShape& shape, const Options& options, const std::string& name);
    [[nodiscard]] bool load_metadata(std::string_view json, spi::EventBatch& arena);

    std::vector<Place> places_;
    std::string id_prefix_;
    bool metadata_ = false;
    const ConnectColumn* not_read_ = nullptr;
};

}  // namespace outbox::codec::debezium
