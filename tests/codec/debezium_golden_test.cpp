// The encoder against what Debezium wrote, as tests/debezium/compare.py --record kept it.
#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include "codec/debezium/encoder.h"

namespace outbox::codec::debezium {
namespace {

using nlohmann::ordered_json;

ordered_json golden(const std::string& name) {
    std::ifstream file(std::string(GOLDEN_FOLDER) + "/" + name + ".json");
    return ordered_json::parse(file);
}

// As `outbox import debezium` names them.
std::map<std::string, std::string> options_of(const ordered_json& group, const ordered_json& one) {
    std::map<std::string, std::string> options{{"topic.prefix", "dbz"}};
    for (const auto& [name, value] : group.items()) {
        const std::string text = value.get<std::string>();
        if (name == "format.schemas.enable") {
            for (const char* part : {"key.", "value.", "header."}) {
                options[part + std::string("schemas.enable")] = text;
            }
        } else {
            options[name.substr(7)] = text;
        }
    }
    for (const auto& [name, value] : one.items()) options[name] = value.get<std::string>();
    return options;
}

spi::RowShape shape_of(const ordered_json& one) {
    spi::RowShape shape;
    shape.schema = "public";
    shape.table = one["table"];
    shape.metadata_as_text = true;
    for (const ordered_json& column : one["columns"]) {
        shape.columns.push_back({.name = column["name"],
                                 .type = column["type"],
                                 .nullable = column["nullable"],
                                 .length = column["length"],
                                 .scale = column["scale"],
                                 .default_value = column["default"],
                                 .labels = column["labels"]});
        shape.metadata_columns.push_back(column["name"]);
    }
    return shape;
}

std::string shown(std::string_view view) {
    return view.data() == nullptr ? "(null)" : std::string(view);
}

std::string shown(const ordered_json& text) {
    return text.is_null() ? "(null)" : text.get<std::string>();
}

// Bytes that are no text stand in the file as Python's backslashreplace writes them.
std::string as_kept(const std::string& text) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x80) {
            out += c;
        } else {
            out.append("\\x").append(1, kDigits[byte >> 4U]).append(1, kDigits[byte & 15U]);
        }
    }
    return out;
}

void expect_same(const spi::Record& record, const ordered_json& wanted, bool binary) {
    EXPECT_EQ(record.topic, wanted["topic"].get<std::string>());
    EXPECT_EQ(shown(record.key), shown(wanted["key"]));
    EXPECT_EQ(binary ? as_kept(shown(record.value)) : shown(record.value), shown(wanted["value"]));
    ASSERT_EQ(record.headers.size(), wanted["headers"].size());
    for (std::size_t i = 0; i < record.headers.size(); ++i) {
        EXPECT_EQ(record.headers[i].name, wanted["headers"][i][0].get<std::string>());
        EXPECT_EQ(shown(record.headers[i].value), shown(wanted["headers"][i][1]));
    }
}

class DebeziumGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(DebeziumGolden, WritesWhatDebeziumWrote) {
    const ordered_json group = golden(GetParam());
    const bool binary = group["options"].value("format.value", "") == "binary";
    std::size_t rows = 0;
    for (const ordered_json& one : group["cases"]) {
        SCOPED_TRACE(one["table"].get<std::string>());
        const auto options = parse_options(options_of(group["options"], one["options"]));
        ASSERT_TRUE(options.ok()) << options.error().message;
        spi::RowShape shape = shape_of(one);
        shape.fields["aggregate_id"] = options->key;
        const auto encoder = DebeziumEncoder::make(*options, shape);
        ASSERT_TRUE(encoder.ok()) << encoder.error().message;
        for (const ordered_json& row : one["rows"]) {
            const std::string text = row["row"].dump();
            SCOPED_TRACE(text.substr(0, 600));
            spi::EventView event;
            event.metadata = text;
            const auto key = row["row"].find(options->key);
            if (key != row["row"].end() && !key->is_null()) {
                event.aggregate_id = key->get_ref<const std::string&>();
            }
            spi::EventBatch arena;
            const auto record = (*encoder)->encode(event, {}, arena);
            ASSERT_TRUE(record.ok()) << record.error().message;
            expect_same(*record, row["record"], binary);
            ++rows;
        }
    }
    EXPECT_GT(rows, 0U);
}

INSTANTIATE_TEST_SUITE_P(Groups, DebeziumGolden,
                         ::testing::Values("json", "plain", "bare", "double", "dates", "binary"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace outbox::codec::debezium
