// The official suite of JSON Schema (Debian's json-schema-test-suite), all of drafts 4, 6 and 7.

#include <cctype>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/json_scan.h"
#include "schema/json_schema.h"

namespace outbox::test {
namespace {

namespace fs = std::filesystem;
using schema::JsonSchema;
using schema::References;

const fs::path kSuite = "/usr/share/json-schema-test-suite";
// Which the suite's package depends on.
const fs::path kMetaSchemas = "/usr/lib/python3/dist-packages/jsonschema/schemas";

std::string read(const fs::path& path) {
    std::ifstream file(path);
    EXPECT_TRUE(file) << path << " is missing; script/setup test installs it";
    return {std::istreambuf_iterator<char>(file), {}};
}

References references_of(const std::string& draft) {
    References found;
    for (const auto& entry : fs::recursive_directory_iterator(kSuite / "remotes")) {
        if (!entry.is_regular_file()) continue;
        found["http://localhost:1234/" +
              fs::relative(entry.path(), kSuite / "remotes").generic_string()] = read(entry.path());
    }
    const std::string number = draft.substr(draft.size() - 1);
    found["http://json-schema.org/draft-0" + number + "/schema"] =
        read(kMetaSchemas / (draft + ".json"));
    return found;
}

struct Tally {
    std::size_t cases = 0;
    std::set<std::string> other;  // what is not as the suite has it
};

// Texts of the items of an array, as they are written: no parser of numbers rounds them.
std::vector<std::string> items_of(std::string_view array) {
    std::vector<std::string> found;
    int depth = 0;
    bool in_string = false;
    std::string item;
    for (std::size_t i = 0; i < array.size(); ++i) {
        const char c = array[i];
        if (in_string) {
            item += c;
            if (c == '\\') item += array[++i];
            if (c == '"') in_string = false;
            continue;
        }
        if (c == '[' || c == '{') ++depth;
        if (c == ']' || c == '}') --depth;
        const bool ends = (c == ',' && depth == 1) || depth == 0;
        if (ends && !item.empty()) found.push_back(std::exchange(item, {}));
        if (ends || (c == '[' && depth == 1) || std::isspace(static_cast<unsigned char>(c)) != 0) {
            continue;
        }
        in_string = c == '"';
        item += c;
    }
    return found;
}

std::map<std::string, std::string> members_of(std::string_view object) {
    std::map<std::string, std::string> found;
    EXPECT_TRUE(for_each_json_member(object, [&](std::string_view name, std::string_view value) {
        found[std::string(name.substr(1, name.size() - 2))] = value;
    }));
    return found;
}

// A schema of the suite is of the draft whose folder it is in.
std::string with_draft(std::string text, const std::string& draft) {
    if (!text.starts_with('{') || members_of(text).contains("$schema")) return text;
    const std::string rest = text.substr(1);
    const std::string comma = rest.find_first_not_of(" \n}") == std::string::npos ? "" : ",";
    return R"({"$schema": "http://json-schema.org/draft-0)" + draft.substr(draft.size() - 1) +
           R"(/schema#")" + comma + rest;
}

void run_file(const std::string& name, const std::string& draft, const fs::path& path,
              const References& references, Tally& tally) {
    for (const std::string& group_text : items_of(read(path))) {
        auto group = members_of(group_text);
        std::string why;
        const auto compiled =
            JsonSchema::compile(with_draft(group["schema"], draft), references, why);
        for (const std::string& one_text : items_of(group["tests"])) {
            auto one = members_of(one_text);
            ++tally.cases;
            const std::string label = name + ": " + one["description"];
            if (!compiled) {
                tally.other.insert(label + " (refused: " + why + ")");
            } else if (compiled->check(one["data"]).has_value() == (one["valid"] == "true")) {
                tally.other.insert(label);
            }
        }
    }
}

Tally run_draft(const std::string& draft) {
    Tally tally;
    const References references = references_of(draft);
    for (const auto& entry : fs::recursive_directory_iterator(kSuite / "tests" / draft)) {
        // `format` is not looked at.
        const bool of_format =
            entry.path().stem() == "format" || entry.path().parent_path().filename() == "format";
        if (!entry.is_regular_file() || of_format) continue;
        run_file(draft + "/" + entry.path().stem().string(), draft, entry.path(), references,
                 tally);
    }
    return tally;
}

using testing::ElementsAre;

// What docs/schemas.md lists: with `format` alone another escape is refused, contents of strings
// are not looked at.
#define ECMA_OF(draft) \
    draft "/ecmascript-regex: \"ECMA 262 has no support for \\\\Z anchor from .NET\""

TEST(JsonSchemaSuite, Draft4) {
    const Tally tally = run_draft("draft4");
    EXPECT_GT(tally.cases, 250U);
    EXPECT_THAT(tally.other, ElementsAre(ECMA_OF("draft4")));
}

TEST(JsonSchemaSuite, Draft6) {
    const Tally tally = run_draft("draft6");
    EXPECT_GT(tally.cases, 400U);
    EXPECT_THAT(tally.other, ElementsAre(ECMA_OF("draft6")));
}

TEST(JsonSchemaSuite, Draft7) {
    const Tally tally = run_draft("draft7");
    EXPECT_GT(tally.cases, 400U);
    EXPECT_THAT(
        tally.other,
        ElementsAre("draft7/content: \"a validly-encoded invalid JSON document\"",
                    "draft7/content: \"an invalid JSON document\"",
                    "draft7/content: \"an invalid base64 string (% is not a valid character)\"",
                    "draft7/content: \"an invalid base64 string that is valid JSON\"",
                    ECMA_OF("draft7")));
}

}  // namespace
}  // namespace outbox::test
