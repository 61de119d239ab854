#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/debezium/json_node.h"

namespace outbox::codec::debezium {

/// The schema that Debezium infers for a JSON value (io.debezium.transforms.outbox.JsonSchemaData).
struct InferredSchema {
    enum class Type : std::uint8_t {
        kBoolean,
        kInt32,
        kInt64,
        kDouble,
        kString,
        kBytes,  ///< Of a null that is kept.
        kArray,
        kStruct,
    };
    Type type = Type::kString;
    bool optional = true;
    bool named = false;
    std::string name;
    std::vector<InferredSchema> items;  ///< Of a struct its fields', of an array its one.
    std::vector<std::string> fields;    ///< Their names.

    bool operator==(const InferredSchema&) const = default;
};

/// A payload with `table.expand.json.payload`.
struct ExpandedPayload {
    enum class Outcome : std::uint8_t {
        kUnchanged,   ///< It is no JSON object, or one that Debezium cannot expand: sent as it is.
        kStruct,      ///< An object: `schema` and `value`.
        kSchemaless,  ///< An empty array: sent as it is, as a text without a schema.
        kBroken,  ///< Its schema does not hold it; with the JSON converter Debezium's engine ends.
    };
    Outcome outcome = Outcome::kUnchanged;
    InferredSchema schema;
    JsonNode value;
};

/// `field`: the payload's column, after which Debezium names the schema. `keep_nulls`: fields that
/// are null stay, as optional bytes.
[[nodiscard]] ExpandedPayload expand(std::string_view payload, std::string_view field,
                                     bool keep_nulls);

/// Appends the schema as JsonConverter writes it; `field`: as that field of a struct, if not null.
void append_schema(const InferredSchema& schema, std::string_view field, std::string& out);

/// Appends the value as JsonConverter writes it. It has been found to fit the schema.
void append_value(const InferredSchema& schema, const JsonNode& value, std::string& out);

/// Appends Struct.toString, as StringConverter does.
void append_java(const InferredSchema& schema, const JsonNode& value, std::string& out);

}  // namespace outbox::codec::debezium
