#pragma once

#include <map>
#include <string>
#include <vector>

namespace outbox::spi {

/// A column of an outbox table as its database declares it.
struct ColumnShape {
    std::string name;
    std::string type;  ///< The database's name of the type, of a domain its base type: "int8".
    bool nullable = true;
    /// What the type was declared with; -1: nothing. varchar(n), bit(n): n. numeric(p, s): p.
    /// Times: the digits of a second.
    int length = -1;
    int scale = 0;                   ///< Of numeric(p, s).
    std::string default_value = {};  ///< An SQL expression; empty: none.
    std::string labels = {};         ///< Of an enum, in their order, with commas between.
};

/// How the rows look that events are made of, for formats that tell types to consumers.
struct RowShape {
    std::string schema;
    std::string table;
    /// In front of ids that do not look like a UUID.
    std::string id_prefix;
    std::map<std::string, std::string> fields;  ///< Event field -> column.
    std::vector<std::string> metadata_columns;
    /// The values in the metadata are texts, as the database prints them.
    bool metadata_as_text = false;
    std::vector<ColumnShape> columns;  ///< Empty: the source does not tell.
};

}  // namespace outbox::spi
