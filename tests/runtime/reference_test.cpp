#include "runtime/reference.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include <outbox/error.h>

#include "backend/backends.h"
#include "core/table_shape.h"
#include "runtime/completions.h"
#include "runtime/man_page.h"
#include "runtime/option_table.h"
#include "runtime/toml_file.h"
#include "tests/support/files.h"

namespace outbox::runtime {
namespace {

const std::string kRoot = OUTBOX_SOURCE_DIR;
constexpr const char* kRemedy = "out of date: run build/.../apps/outbox/write_reference SOURCE_DIR";

TEST(Reference, PagesInTheRepositoryAreTheOnesMadeFromTheDeclarations) {
    EXPECT_EQ(test::read_file(kRoot + "/docs/reference/options.md"), options_page()) << kRemedy;
    EXPECT_EQ(test::read_file(kRoot + "/docs/reference/errors.md"), errors_page()) << kRemedy;
    EXPECT_EQ(test::read_file(kRoot + "/docs/reference/metrics.md"), metrics_page()) << kRemedy;
    EXPECT_EQ(test::read_file(kRoot + "/outbox.example.toml"), example_file()) << kRemedy;
    const std::string packaging = kRoot + "/packaging/";
    EXPECT_EQ(test::read_file(packaging + "man/outbox.1"), man_page()) << kRemedy;
    EXPECT_EQ(test::read_file(packaging + "completions/outbox.bash"), bash_completion()) << kRemedy;
    EXPECT_EQ(test::read_file(packaging + "completions/outbox.fish"), fish_completion()) << kRemedy;
    EXPECT_EQ(test::read_file(packaging + "completions/outbox.zsh"), zsh_completion()) << kRemedy;
}

TEST(Reference, PagesOfBrokersHaveTheDeclaredOptions) {
    for (const Broker* broker : brokers()) {
        if (broker->options.empty() || broker->name == "mailbox") continue;  // in the reference
        const std::string path = kRoot + "/docs/brokers/" + std::string(broker->name) + ".md";
        const std::string page = test::read_file(path);
        const std::string wanted = with_broker_options(*broker, page);
        EXPECT_NE(wanted, "") << path << " has no place for the table of options";
        EXPECT_EQ(page, wanted) << path << " is " << kRemedy;
    }
}

TEST(Reference, EveryErrorCodeIsExplained) {
    const std::string page = errors_page();
    for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
        const std::string name(error_code_name(static_cast<ErrorCode>(code)));
        EXPECT_NE(page.find("`" + name + "`"), std::string::npos) << name;
    }
}

TEST(Reference, PresetsAreTheKnownTableShapes) {
    std::string choices;
    for (const TableShape& shape : table_shapes()) {
        choices += (choices.empty() ? "" : "|") + std::string(shape.preset);
    }
    EXPECT_EQ(find_option("preset")->choices, choices);
}

// A line "# key = value" is a setting; other lines that begin with "#" are prose.
std::string uncomment_settings(const std::string& text) {
    std::istringstream lines(text);
    std::string out;
    for (std::string line; std::getline(lines, line);) {
        const std::string bare = line.starts_with("# ") ? line.substr(2) : line;
        const std::string word = bare.substr(0, bare.find(' '));
        const bool setting = bare.starts_with('[') || bare.substr(word.size()).starts_with(" = ");
        const bool alternative =
            word == "allowed_topics" || word == "owner" || word == "tenant" || word == "to";
        out += (setting && !alternative ? bare : "# " + bare) + "\n";
    }
    return out;
}

TEST(Reference, ExampleFileIsValidAlsoWithEverySettingOn) {
    const test::TemporaryFolder folder;
    const std::string path = folder / "outbox.toml";
    std::string text = uncomment_settings(example_file());
    text.resize(text.find("[[route]]"));
    std::ofstream(path) << text;
    const auto content = read_toml_file(path);
    ASSERT_TRUE(content.ok()) << content.error().message << "\n" << text;
    EXPECT_GT(content->options.size(), 15U);
    EXPECT_FALSE(content->mapping.columns.empty());
}

}  // namespace
}  // namespace outbox::runtime
