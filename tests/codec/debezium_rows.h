#pragma once

#include <outbox/spi/row_shape.h>

namespace outbox::codec {

/// The table that Debezium's guide names.
inline spi::RowShape debezium_rows() {
    spi::RowShape shape;
    shape.schema = "public";
    shape.table = "outboxevent";
    shape.id_prefix = "public.outboxevent:";
    shape.fields = {{"id", "id"},
                    {"aggregate_type", "aggregatetype"},
                    {"aggregate_id", "aggregateid"},
                    {"event_type", "type"},
                    {"payload", "payload"}};
    shape.columns = {{.name = "id", .type = "uuid", .nullable = false},
                     {.name = "aggregatetype", .type = "varchar"},
                     {.name = "aggregateid", .type = "varchar"},
                     {.name = "type", .type = "varchar", .nullable = false},
                     {.name = "payload", .type = "jsonb"}};
    return shape;
}

}  // namespace outbox::codec
