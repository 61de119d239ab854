#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

// The one SQL example of the page.
std::string example() {
    const std::string page = read_file(LANGUAGES_PAGE);
    const std::string fence = "```sql\n";
    const std::size_t start = page.find(fence);
    if (start == std::string::npos) return {};
    const std::size_t text = start + fence.size();
    return page.substr(text, page.find("```", text) - text);
}

TEST(LanguagesPage, AMessagePutAsideIsShownAndItsRepeatsAreDropped) {
    const std::string url = shared_postgres().create_database();
    OutboxBinary outbox;
    ASSERT_EQ(outbox.run({"migrate", "--db", url, "--only", "consumer"}).status.code, 0);
    Pg database(url);
    ASSERT_NE(example(), "");
    database.exec(example());
    const Finished shown = outbox.run({"dead", "list", "--consumer", "billing", "--db", url});
    EXPECT_EQ(shown.status.code, 0) << shown.err;
    EXPECT_THAT(shown.out, testing::HasSubstr("OB_INVALID_EVENT: no cents"));
    EXPECT_EQ(
        database.value("SELECT inbox_accept('billing', '01939d3e-7c00-7aaa-8000-000000000001')"),
        "f");
}

}  // namespace
}  // namespace outbox::test
