#include <future>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/polyglot/suite.h"
#include "tests/support/eventually.h"
#include "tests/support/pg.h"

namespace outbox::test {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;

namespace {

constexpr std::size_t kMaxBodyBytes = 65'536;

std::string body(const std::string& order) {
    return R"({"order_id":")" + order + R"(","cents":25})";
}

}  // namespace

void PolyglotHttp::SetUp() {
    Polyglot::SetUp();
    server_.emplace(program_->serve(shop->url()));
    ASSERT_TRUE(eventually(120s, "it listens",
                           [&] { return server_->stdout_text().find('\n') != std::string::npos; }));
    const std::string said = server_->stdout_text();
    const std::string expected = "listening ";
    ASSERT_TRUE(said.starts_with(expected)) << said;
    port_ = std::stoi(said.substr(expected.size()));
}

HttpAnswer PolyglotHttp::post(const std::string& text, const std::string& key,
                              const std::string& user) const {
    const std::string header = key.empty() ? "" : "Idempotency-Key: " + key + "\r\n";
    return http(port_, "POST", "/orders", text, "X-User: " + user + "\r\n" + header);
}

std::string PolyglotHttp::outcome(const std::string& name) {
    return Pg(shop->url())
               .value("SELECT coalesce(max(version), 0) FROM orders WHERE id = " + literal(name)) +
           " " + std::to_string(shop->events_of(name).size());
}

TEST_P(PolyglotHttp, ARepeatedRequestGetsTheFirstAnswerAndHasOneEffect) {
    const std::string name = order("1");
    const HttpAnswer first = post(body(name), name);
    ASSERT_EQ(first.status, 201) << first.body << server_->stderr_text();
    EXPECT_EQ(json::parse(first.body), (json{{"order_id", name}, {"version", 1}, {"cents", 25}}));
    const HttpAnswer again = post(body(name), name);
    EXPECT_EQ(again.status, 201);
    EXPECT_EQ(again.body, first.body);
    EXPECT_EQ(again.headers.at("content-type"), first.headers.at("content-type"));
    EXPECT_EQ(post(body(order("other")), name).status, 422);
    EXPECT_EQ(outcome(name), "1 1");
    EXPECT_EQ(outcome(order("other")), "0 0");
    EXPECT_TRUE(ends_in_order(*server_)) << server_->stderr_text();
}

TEST_P(PolyglotHttp, ARequestThatFailsLeavesItsKeyFree) {
    const std::string name = order("1");
    const HttpAnswer unknown = post(body(name), name, prefix_);
    EXPECT_EQ(unknown.status, 422);
    EXPECT_THAT(unknown.body, HasSubstr("refused"));
    EXPECT_EQ(outcome(name), "0 0");
    Pg(shop->url()).exec("INSERT INTO customers VALUES (" + literal(prefix_) + ")");
    EXPECT_EQ(post(body(name), name, prefix_).status, 201);
    EXPECT_EQ(outcome(name), "1 1");
}

TEST_P(PolyglotHttp, BadRequestsAreAnsweredWithWhatIsWrong) {
    const std::string name = order("1");
    EXPECT_EQ(post(body(name), "").status, 400);
    EXPECT_EQ(post(body(name), std::string(256, 'k')).status, 400);
    EXPECT_EQ(post("{", name).status, 400);
    EXPECT_EQ(post(R"({"order_id":5,"cents":"much"})", name).status, 400);
    EXPECT_EQ(post("{}", name).status, 400);
    EXPECT_EQ(post(R"({"order_id":")" + name + R"(","cents":-1})", name).status, 422);
    EXPECT_EQ(post(std::string(kMaxBodyBytes + 1, ' '), name).status, 413);
    EXPECT_EQ(outcome(name), "0 0");
    EXPECT_EQ(post(body(name), name).status, 201);
}

TEST_P(PolyglotHttp, ARequestIsAskedToComeAgainWhileTheFirstIsUnderWay) {
    const std::string name = order("1");
    Pg first(shop->url());
    first.exec("BEGIN; SELECT idempotency_claim('alice', " + literal(name) + ", 'x')");
    const HttpAnswer busy = post(body(name), name);
    EXPECT_EQ(busy.status, 409);
    EXPECT_EQ(busy.headers.at("retry-after"), "1");
    first.exec("ROLLBACK");
    EXPECT_EQ(post(body(name), name).status, 201);
    EXPECT_EQ(outcome(name), "1 1");
}

TEST_P(PolyglotHttp, ManyRequestsAtOnceWithOneKeyHaveOneEffect) {
    constexpr int kRequests = 20;
    const std::string name = order("1");
    std::vector<std::future<HttpAnswer>> answers;
    for (int i = 0; i < kRequests; ++i) {
        answers.push_back(std::async(std::launch::async, [&] { return post(body(name), name); }));
    }
    std::set<std::string> bodies;
    for (auto& answer : answers) {
        const HttpAnswer got = answer.get();
        EXPECT_THAT(got.status, testing::AnyOf(201, 409)) << got.body;
        if (got.status == 201) bodies.insert(got.body);
    }
    EXPECT_EQ(bodies.size(), 1U);
    EXPECT_EQ(outcome(name), "1 1");
}

}  // namespace outbox::test
