#include "codec/debezium/expanded_payload.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "codec/debezium/java_text.h"

namespace outbox::codec::debezium {
namespace {

using Kind = JsonNode::Kind;
using Type = InferredSchema::Type;
using Outcome = ExpandedPayload::Outcome;

constexpr std::size_t kMostFields = 1'000'000;

// Thrown where Debezium's inference throws: the payload stays as it is.
struct NotInferred {};

InferredSchema of_type(Type type) {
    InferredSchema schema;
    schema.type = type;
    return schema;
}

class Inference {
  public:
    explicit Inference(bool keep_nulls) : keep_nulls_(keep_nulls) {}

    // None: the value is left out. `key` null: without a name.
    [[nodiscard]] std::optional<InferredSchema> schema_of(const std::string* key,
                                                          const JsonNode& node) const {
        switch (node.kind) {
            case Kind::kString:
                return of_type(Type::kString);
            case Kind::kBoolean:
                return of_type(Type::kBoolean);
            case Kind::kInt:
                return of_type(Type::kInt32);
            case Kind::kLong:
                return of_type(Type::kInt64);
            case Kind::kBig:
            case Kind::kDouble:
                return of_type(Type::kDouble);
            case Kind::kArray:
                if (node.items.empty()) return std::nullopt;
                return array_of(key, node);
            case Kind::kObject:
                return struct_of(key, node);
            case Kind::kNull:
                break;
        }
        return keep_nulls_ ? std::optional(of_type(Type::kBytes)) : std::nullopt;
    }

  private:
    [[nodiscard]] InferredSchema struct_of(const std::string* key, const JsonNode& node) const {
        InferredSchema schema = of_type(Type::kStruct);
        schema.named = key != nullptr;
        if (key != nullptr) schema.name = *key;
        const bool blank = java_trim(schema.name).empty();
        for (std::size_t i = 0; i < node.names.size(); ++i) {
            const std::string& name = node.names[i];
            const std::string inner = (blank ? std::string() : schema.name + ".") + name;
            auto field = schema_of(&inner, node.items[i]);
            if (!field) continue;
            if (name.empty()) throw NotInferred();
            schema.fields.push_back(name);
            schema.items.push_back(std::move(*field));
        }
        return schema;
    }

    [[nodiscard]] InferredSchema array_of(const std::string* key, const JsonNode& node) const {
        InferredSchema schema = of_type(Type::kArray);
        const JsonNode& sample = first_of(node);
        if (sample.kind == Kind::kObject) {
            schema.items.push_back(merged(key, node));
            return schema;
        }
        auto item = schema_of(nullptr, sample);
        if (!item) throw NotInferred();
        schema.items.push_back(std::move(*item));
        return schema;
    }

    // The first that is not null, all others being of its kind.
    [[nodiscard]] static const JsonNode& first_of(const JsonNode& array) {
        const JsonNode* first = nullptr;
        for (const JsonNode& item : array.items) {
            if (item.kind == Kind::kNull) continue;
            if (first == nullptr) first = &item;
            const auto size = [](const JsonNode& number) {
                return number.kind == Kind::kBig ? Kind::kDouble : number.kind;
            };
            if (size(item) != size(*first)) throw NotInferred();
        }
        return first == nullptr ? array.items.front() : *first;
    }

    // Of all objects of an array. Debezium goes through them in no order: here they keep theirs.
    [[nodiscard]] InferredSchema merged(const std::string* key, const JsonNode& array) const {
        std::optional<InferredSchema> first;
        InferredSchema all;
        std::unordered_map<std::string, std::size_t> places;
        for (const JsonNode& item : array.items) {
            if (item.kind != Kind::kObject) continue;
            InferredSchema schema = struct_of(key, item);
            if (first && schema == *first) continue;
            all.optional = !first;  // SchemaUtil.copySchemaBasics does not copy it
            if (!first) {
                first = all = schema;
                for (std::size_t i = 0; i < all.fields.size(); ++i) places[all.fields[i]] = i;
                continue;
            }
            for (std::size_t i = 0; i < schema.fields.size(); ++i) {
                add(all, places, schema.fields[i], std::move(schema.items[i]));
            }
        }
        return all;
    }

    static void add(InferredSchema& all, std::unordered_map<std::string, std::size_t>& places,
                    const std::string& name, InferredSchema schema) {
        const auto [known, is_new] = places.emplace(name, all.fields.size());
        if (is_new) {
            all.fields.push_back(name);
            all.items.push_back(std::move(schema));
            return;
        }
        InferredSchema& old = all.items[known->second];
        if (old.type == Type::kBytes && schema.type != Type::kBytes) old = std::move(schema);
    }

    bool keep_nulls_;
};

// Whether Connect takes the value for one of the schema. `room`: how many fields it may be printed
// as. An object of an array is printed with the fields of all of them.
bool fits(const InferredSchema& schema, const JsonNode& node, std::size_t& room) {
    switch (node.kind) {
        case Kind::kNull:
            return schema.optional;
        case Kind::kBoolean:
            return schema.type == Type::kBoolean;
        case Kind::kInt:
            return schema.type == Type::kInt32;
        case Kind::kLong:
            return schema.type == Type::kInt64;
        case Kind::kDouble:
            return schema.type == Type::kDouble;
        case Kind::kBig:  // becomes a BigDecimal, for which there is no schema
            return false;
        case Kind::kString:
            return schema.type == Type::kString;
        case Kind::kArray:
            return schema.type == Type::kArray &&
                   std::all_of(node.items.begin(), node.items.end(), [&](const JsonNode& item) {
                       return fits(schema.items.front(), item, room);
                   });
        case Kind::kObject:
            break;
    }
    if (schema.type != Type::kStruct || schema.fields.size() > room) return false;
    room -= schema.fields.size();
    std::size_t hint = 0;
    for (std::size_t i = 0; i < schema.fields.size(); ++i) {
        const JsonNode* value = node.find(schema.fields[i], hint);
        if (value != nullptr && !fits(schema.items[i], *value, room)) return false;
    }
    return true;
}

std::string_view name_of(Type type) {
    switch (type) {
        case Type::kBoolean:
            return "boolean";
        case Type::kInt32:
            return "int32";
        case Type::kInt64:
            return "int64";
        case Type::kDouble:
            return "double";
        case Type::kString:
            return "string";
        case Type::kBytes:
            return "bytes";
        case Type::kArray:
            return "array";
        case Type::kStruct:
            break;
    }
    return "struct";
}

}  // namespace

ExpandedPayload expand(std::string_view payload, std::string_view field, bool keep_nulls) {
    ExpandedPayload out;
    if (!payload.starts_with('{') && !payload.starts_with('[')) return out;
    auto node = read_json(payload);
    if (!node) return out;
    std::optional<InferredSchema> schema;
    try {
        const std::string name(field);
        schema = Inference(keep_nulls).schema_of(&name, *node);
    } catch (const NotInferred&) {
        return out;
    }
    std::size_t room = kMostFields;
    if (!schema) {
        out.outcome = Outcome::kSchemaless;
    } else if (schema->type != Type::kStruct || !fits(*schema, *node, room)) {
        out.outcome = Outcome::kBroken;
    } else {
        out.outcome = Outcome::kStruct;
        out.schema = std::move(*schema);
        out.value = std::move(*node);
    }
    return out;
}

void append_schema(const InferredSchema& schema, std::string_view field, std::string& out) {
    out.append(R"({"type":")").append(name_of(schema.type)).append("\"");
    if (schema.type == Type::kArray) {
        out += R"(,"items":)";
        append_schema(schema.items.front(), {}, out);
    } else if (schema.type == Type::kStruct) {
        out += R"(,"fields":[)";
        for (std::size_t i = 0; i < schema.fields.size(); ++i) {
            if (i > 0) out += ',';
            append_schema(schema.items[i], schema.fields[i], out);
        }
        out += ']';
    }
    out.append(R"(,"optional":)").append(schema.optional ? "true" : "false");
    if (schema.named) {
        out += R"(,"name":)";
        append_jackson_string(schema.name, out);
    }
    if (field.data() != nullptr) {
        out += R"(,"field":)";
        append_jackson_string(field, out);
    }
    out += '}';
}

void append_value(const InferredSchema& schema, const JsonNode& value, std::string& out) {
    switch (value.kind) {
        case Kind::kString:
            append_jackson_string(value.text, out);
            break;
        case Kind::kDouble: {
            std::string text;
            append_java(value.number, text);
            if (text.back() == 'y' || text == "NaN") text = "\"" + text + "\"";  // Infinity
            out += text;
            break;
        }
        case Kind::kArray:
            out += '[';
            for (std::size_t i = 0; i < value.items.size(); ++i) {
                if (i > 0) out += ',';
                append_value(schema.items.front(), value.items[i], out);
            }
            out += ']';
            break;
        case Kind::kObject: {
            out += '{';
            std::size_t hint = 0;
            for (std::size_t i = 0; i < schema.fields.size(); ++i) {
                if (i > 0) out += ',';
                append_jackson_string(schema.fields[i], out);
                out += ':';
                const JsonNode* member = value.find(schema.fields[i], hint);
                append_value(schema.items[i], member == nullptr ? JsonNode{} : *member, out);
            }
            out += '}';
            break;
        }
        case Kind::kNull:
            out += "null";
            break;
        default:
            out += value.text;
    }
}

void append_java(const InferredSchema& schema, const JsonNode& value, std::string& out) {
    switch (value.kind) {
        case Kind::kDouble:
            append_java(value.number, out);
            break;
        case Kind::kArray:
            out += '[';
            for (std::size_t i = 0; i < value.items.size(); ++i) {
                if (i > 0) out += ", ";
                append_java(schema.items.front(), value.items[i], out);
            }
            out += ']';
            break;
        case Kind::kObject: {
            out += "Struct{";
            bool first = true;
            std::size_t hint = 0;
            for (std::size_t i = 0; i < schema.fields.size(); ++i) {
                const JsonNode* member = value.find(schema.fields[i], hint);
                if (member == nullptr || member->kind == Kind::kNull) continue;
                if (!first) out += ',';
                first = false;
                out.append(schema.fields[i]).append("=");
                append_java(schema.items[i], *member, out);
            }
            out += '}';
            break;
        }
        case Kind::kNull:
            out += "null";
            break;
        default:
            out += value.text;
    }
}

}  // namespace outbox::codec::debezium
