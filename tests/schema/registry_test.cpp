// Against a real Apicurio Registry, and what may stand before one.

#include "schema/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "core/redact.h"
#include "schema/schema_check.h"
#include "tests/schema/registry_server.h"
#include "tests/support/certificates.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using schema::make_registry_config;
using schema::Registry;
using schema::RegistryLimits;
using schema::SchemaCheck;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kOrder =
    R"({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "required": ["quantity"], "properties": {"quantity": {"type": "integer", "minimum": 1}}})";

class SchemaRegistry : public testing::Test {
  protected:
    std::shared_ptr<Registry> registry(const std::string& url, const RegistryLimits& limits = {}) {
        auto config = make_registry_config(url);
        EXPECT_TRUE(config.ok()) << config.error().message;
        return std::make_shared<Registry>(*std::move(config), limits, [this] { return now_; });
    }
    // "", or the error.
    static std::string error_of(const Registry::Answer& answer) {
        const auto* failure = std::get_if<Registry::Failure>(&answer);
        return failure == nullptr ? "" : describe(failure->error);
    }
    static const Registry::Schema& schema_of(const Registry::Answer& answer) {
        EXPECT_EQ(error_of(answer), "");
        return *std::get<std::shared_ptr<const Registry::Schema>>(answer);
    }

    RegistryServer& server_ = shared_registry();
    const std::string subject_ = "subject-" + std::to_string(++subjects);
    Registry::Clock::time_point now_{};
    static inline int subjects = 0;
};

TEST_F(SchemaRegistry, TellsIdAndRulesOfAVersionAndAsksOnce) {
    const std::uint32_t id = server_.add(subject_, kOrder);
    const Front front(server_.port());
    const auto registry = this->registry(front.url());
    EXPECT_FALSE(registry->find(subject_, "1"));
    const auto first = registry->ask(subject_, "1", {});
    EXPECT_EQ(schema_of(first).id, id);
    ASSERT_TRUE(schema_of(first).rules);
    EXPECT_FALSE(schema_of(first).rules->check(R"({"quantity": 1})"));
    EXPECT_TRUE(schema_of(first).rules->check(R"({"quantity": 0})"));
    now_ += RegistryLimits().version_for - 1ms;
    for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(registry->find(subject_, "1"));
        EXPECT_EQ(error_of(registry->ask(subject_, "1", {})), "");
    }
    EXPECT_EQ(front.asked(subject_), 1U);
}

TEST_F(SchemaRegistry, ManyThatAskAtOnceAreOneRequest) {
    server_.add(subject_, kOrder);
    const Front front(server_.port());
    const auto registry = this->registry(front.url());
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] { EXPECT_EQ(error_of(registry->ask(subject_, "1", {})), ""); });
    }
    threads.clear();
    EXPECT_EQ(front.asked(subject_), 1U);
}

TEST_F(SchemaRegistry, TheLatestVersionIsAskedForAgainAfterAWhile) {
    const std::uint32_t first = server_.add(subject_, kOrder);
    const Front front(server_.port());
    const RegistryLimits limits;
    const auto registry = this->registry(front.url());
    EXPECT_EQ(schema_of(registry->ask(subject_, "", {})).id, first);
    const std::uint32_t second = server_.add(
        subject_, R"({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"})");
    ASSERT_NE(first, second);
    now_ += limits.latest_for - 1ms;
    EXPECT_EQ(schema_of(registry->ask(subject_, "latest", {})).id, first);
    EXPECT_EQ(front.asked(subject_), 1U);
    now_ += 1ms;
    EXPECT_FALSE(registry->find(subject_, ""));
    EXPECT_EQ(schema_of(registry->ask(subject_, "", {})).id, second);
}

// As the registry was made anew, or restored: whoever looks at an id there finds another schema.
TEST_F(SchemaRegistry, AVersionIsAskedForAgainAfterAWhileAndStaysWhileNobodyCanTell) {
    RegistryServer own;
    own.add(subject_, kOrder);
    const std::string any = R"({"$schema": "http://json-schema.org/draft-07/schema#"})";
    const auto registry = this->registry(own.url());
    EXPECT_TRUE(schema_of(registry->ask(subject_, "1", {})).rules->check("{}"));
    EXPECT_EQ(error_of(registry->ask(subject_, "latest", {})), "");
    own.stop();
    now_ += RegistryLimits().version_for;
    EXPECT_FALSE(registry->find(subject_, "1")) << "it has to be asked for";
    EXPECT_EQ(error_of(registry->ask(subject_, "1", {})), "");
    EXPECT_TRUE(registry->find(subject_, "1")) << "and is not for each event";
    EXPECT_THAT(error_of(registry->ask(subject_, "latest", {})), HasSubstr("OB_CONNECT_FAILED"));
    own.start();
    own.add("another", kOrder);
    const std::uint32_t id = own.add(subject_, any);
    EXPECT_TRUE(schema_of(registry->ask(subject_, "1", {})).rules->check("{}")) << "remembered";
    now_ += RegistryLimits().version_for;
    const auto answer = registry->ask(subject_, "1", {});
    EXPECT_EQ(schema_of(answer).id, id);
    EXPECT_FALSE(schema_of(answer).rules->check("{}"));
}

TEST_F(SchemaRegistry, ForgetsWhatWasNotUsedForLongest) {
    server_.add(subject_, kOrder);
    server_.add(subject_ + "-b", kOrder);
    server_.add(subject_ + "-c", kOrder);
    const auto registry = this->registry(server_.url(), {.max_schemas = 2});
    registry->ask(subject_, "1", {});
    registry->ask(subject_ + "-b", "1", {});
    EXPECT_TRUE(registry->find(subject_, "1"));
    registry->ask(subject_ + "-c", "1", {});
    EXPECT_TRUE(registry->find(subject_, "1"));
    EXPECT_FALSE(registry->find(subject_ + "-b", "1"));
    const auto small = this->registry(server_.url(), {.max_bytes = 1'000});
    small->ask(subject_, "1", {});
    small->ask(subject_ + "-b", "1", {});
    EXPECT_FALSE(small->find(subject_, "1"));
    EXPECT_TRUE(small->find(subject_ + "-b", "1"));
}

TEST_F(SchemaRegistry, AnUnknownSubjectOrVersionIsAFaultOfItsOwnAndSoonAskedForAgain) {
    const Front front(server_.port());
    const auto registry = this->registry(front.url());
    const auto unknown = registry->ask(subject_, "1", {});
    EXPECT_THAT(error_of(unknown), AllOf(HasSubstr("OB_SCHEMA_UNKNOWN"), HasSubstr(subject_),
                                         HasSubstr("register it")));
    const auto& failure = std::get<Registry::Failure>(unknown);
    EXPECT_EQ(failure.error.advice, Advice::kRetryDestination);
    EXPECT_THAT(failure.part, HasSubstr("schema '" + subject_ + "' version 1 in schema registry"));
    EXPECT_TRUE(registry->find(subject_, "1")) << "no storm of requests";
    server_.add(subject_, kOrder);
    now_ += RegistryLimits().unknown_for;
    EXPECT_EQ(error_of(registry->ask(subject_, "1", {})), "");
    EXPECT_THAT(error_of(registry->ask(subject_, "7", {})), HasSubstr("OB_SCHEMA_UNKNOWN"));
}

// Else subjects that nobody registers keep a registry that is not quick from all others.
TEST_F(SchemaRegistry, WhatIsNotThereIsAskedForLaterEachTimeUpToAMinute) {
    const auto registry = this->registry(server_.url());
    std::chrono::milliseconds wait = RegistryLimits().unknown_for;
    for (int i = 0; i < 10; ++i) {
        EXPECT_NE(error_of(registry->ask(subject_, "1", {})), "");
        now_ += wait - std::chrono::milliseconds(1);
        EXPECT_TRUE(registry->find(subject_, "1")) << i;
        now_ += std::chrono::milliseconds(1);
        EXPECT_FALSE(registry->find(subject_, "1")) << i;
        wait = std::min(2 * wait, RegistryLimits().latest_for);
    }
    server_.add(subject_, kOrder);
    EXPECT_EQ(error_of(registry->ask(subject_, "1", {})), "");
    now_ += RegistryLimits().latest_for;
    EXPECT_TRUE(registry->find(subject_, "1")) << "as any other from then on";
}

TEST_F(SchemaRegistry, OtherTypesHaveAnIdAndNoRules) {
    const std::uint32_t id =
        server_.add(subject_, R"({"type": "record", "name": "a", "fields": []})", "AVRO");
    const auto answer = registry(server_.url())->ask(subject_, "1", {});
    EXPECT_EQ(schema_of(answer).id, id);
    EXPECT_FALSE(schema_of(answer).rules);
}

TEST_F(SchemaRegistry, FetchesWhatASchemaRefersTo) {
    server_.add(subject_, kOrder);
    server_.add(subject_ + "-all",
                R"({"$schema": "http://json-schema.org/draft-07/schema#",
                    "items": {"$ref": "order.json"}})",
                "JSON",
                R"([{"name": "order.json", "subject": ")" + subject_ + R"(", "version": 1}])");
    const auto answer = registry(server_.url())->ask(subject_ + "-all", "1", {});
    ASSERT_TRUE(schema_of(answer).rules);
    const auto violation = schema_of(answer).rules->check(R"([{"quantity": 1}, {"quantity": 0}])");
    ASSERT_TRUE(violation);
    EXPECT_EQ(violation->path, "/1/quantity");
}

TEST_F(SchemaRegistry, ASchemaThatCannotBeUsedIsAFaultOfItsOwn) {
    server_.add(subject_, R"({"$schema": "https://json-schema.org/draft/2020-12/schema"})");
    const auto answer = registry(server_.url())->ask(subject_, "1", {});
    EXPECT_THAT(error_of(answer),
                AllOf(HasSubstr("OB_SCHEMA_UNKNOWN"), HasSubstr("drafts 4, 6 and 7")));
    EXPECT_NE(std::get<Registry::Failure>(answer).part, "");
}

TEST_F(SchemaRegistry, WhatIsNoRegistryIsAnOutageThatSaysWhatAnswers) {
    server_.add(subject_, kOrder);
    const Front front(server_.port());
    const std::vector<std::pair<std::string, std::string>> cases{
        {"html", "with HTML"},
        {"redirect https://login.example.com/?token=s3cret", "redirects are not followed"},
        {"status 503", "it goes on by itself"},
        {"status 404", "something else than a schema registry"},
        {"text [1]", "an answer without id and schema"},
        {"close", "check schema_registry and the network"},
        {"status 403", "the right to read it"}};
    for (const auto& [mode, wanted] : cases) {
        front.set_mode(mode);
        const auto registry = this->registry(front.url());
        const auto answer = registry->ask(subject_, "1", {});
        EXPECT_THAT(error_of(answer), HasSubstr(wanted)) << mode;
        const auto& failure = std::get<Registry::Failure>(answer);
        EXPECT_EQ(failure.error.advice, Advice::kRetryDestination) << mode;
        const bool of_schema = mode == "status 403";
        EXPECT_EQ(!failure.part.empty(), of_schema) << mode;
        EXPECT_THAT(error_of(answer), Not(HasSubstr("s3cret"))) << mode;
        front.set_mode("pass");
        EXPECT_EQ(error_of(registry->ask(subject_ + "", "1", {})),
                  of_schema ? error_of(answer) : "")
            << mode;
    }
}

TEST_F(SchemaRegistry, WhatOneSubjectAloneGetsIsItsOwnFaultWhateverItIs) {
    const std::string bad = subject_ + "-bad";
    server_.add(subject_, kOrder);
    server_.add(bad, kOrder);
    const Front front(server_.port());
    for (const std::string mode : {"status 500", "page 500", "page 414", "page 404", "page 403",
                                   "status 400", "html", "redirect http://x", "text {}", "close"}) {
        front.set_mode("for " + bad + " " + mode);
        const auto registry = this->registry(front.url());
        const auto answer = registry->ask(bad, "1", {});
        EXPECT_THAT(error_of(answer), AllOf(HasSubstr("OB_SCHEMA_UNKNOWN"), HasSubstr(bad),
                                            HasSubstr("the registry answers otherwise")))
            << mode;
        const auto& failure = std::get<Registry::Failure>(answer);
        EXPECT_EQ(failure.error.advice, Advice::kRetryDestination) << mode;
        EXPECT_THAT(failure.part, HasSubstr(bad)) << mode;
        EXPECT_EQ(error_of(registry->ask(subject_, "1", {})), "") << mode;
        now_ += RegistryLimits().unknown_for;
        front.set_mode("pass");
        EXPECT_EQ(error_of(registry->ask(bad, "1", {})), "") << mode;
    }
    for (const std::string mode : {"status 401", "status 429"}) {
        front.set_mode("for " + bad + " " + mode);
        const auto answer = this->registry(front.url())->ask(bad, "1", {});
        EXPECT_EQ(std::get<Registry::Failure>(answer).part, "") << mode;
    }
}

TEST_F(SchemaRegistry, CheckTakesOnlyARegistryForOne) {
    const Front front(server_.port());
    EXPECT_TRUE(registry(front.url())->check().ok());
    for (const std::string body : {"{}", "[]", "[1]", R"({"status": "ok"})"}) {
        front.set_mode("text " + body);
        const Status status = registry(front.url())->check();
        ASSERT_FALSE(status.ok()) << body;
        EXPECT_THAT(describe(status.error()),
                    AllOf(HasSubstr("no list of types"), HasSubstr("something else than")));
    }
}

TEST_F(SchemaRegistry, OneThatHangsCostsItsTimeoutOnceForAllThatWait) {
    const Front front(server_.port());
    front.set_mode("hang");
    const auto registry = this->registry(front.url(), {.request_time = 3s});
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
            EXPECT_THAT(error_of(registry->ask(subject_, "1", {})), HasSubstr("OB_SINK_TIMEOUT"));
        });
    }
    threads.clear();
    EXPECT_LT(front.asked(subject_), 8U);
}

TEST_F(SchemaRegistry, StopsWaitingWhereTheRelayStops) {
    const Front front(server_.port());
    front.set_mode("hang");
    const auto registry = this->registry(front.url(), {.request_time = 600s});
    std::jthread asks([&](const std::stop_token& stop) {
        EXPECT_THAT(error_of(registry->ask(subject_, "1", stop)), HasSubstr("the relay stops"));
    });
    while (front.asked(subject_) == 0) std::this_thread::sleep_for(1ms);
    asks.request_stop();
    asks.join();
}

TEST_F(SchemaRegistry, NobodyListensIsAnOutage) {
    const auto answer =
        registry("http://127.0.0.1:" + std::to_string(free_port()))->ask(subject_, "1", {});
    EXPECT_THAT(error_of(answer), HasSubstr("OB_CONNECT_FAILED"));
    EXPECT_EQ(std::get<Registry::Failure>(answer).part, "");
}

TEST_F(SchemaRegistry, LogsInByPasswordOrTokenAndShowsNeither) {
    server_.add(subject_, kOrder);
    const Front basic(server_.port(), "Basic cmVsYXk6czNjcmV0");  // relay:s3cret
    EXPECT_EQ(error_of(registry(basic.url("relay:s3cret@"))->ask(subject_, "1", {})), "");
    EXPECT_TRUE(registry(basic.url("relay:s3cret@"))->check().ok());
    const auto wrong = registry(basic.url("relay:wr0ng-pass@"))->ask(subject_, "1", {});
    EXPECT_THAT(error_of(wrong),
                AllOf(HasSubstr("OB_AUTH_FAILED"), HasSubstr("check user and password"),
                      Not(HasSubstr("wr0ng-pass"))));
    EXPECT_EQ(std::get<Registry::Failure>(wrong).part, "");
    EXPECT_THAT(error_of(registry(basic.url())->ask(subject_, "1", {})),
                HasSubstr("OB_AUTH_FAILED"));
    const Front token(server_.port(), "Bearer t0ken-of-relay");
    EXPECT_EQ(error_of(registry(token.url(":t0ken-of-relay@"))->ask(subject_, "1", {})), "");
    const Status refused = registry(token.url(":another-t0ken@"))->check();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kAuthFailed);
    EXPECT_THAT(refused.error().message, Not(HasSubstr("another-t0ken")));
    EXPECT_THAT(redact("said Basic cmVsYXk6czNjcmV0"), Not(HasSubstr("cmVsYXk6czNjcmV0")));
}

TEST_F(SchemaRegistry, TrustsTheCertificateThatItIsTold) {
    server_.add(subject_, kOrder);
    Certificates keys;
    keys.sign("server", "/CN=localhost", "subjectAltName=DNS:localhost");
    keys.make_ca("other");
    const Front front(server_.port(), "", keys.file("server.pem"));
    const std::string url =
        "https://localhost:" + std::to_string(front.port()) + "/apis/ccompat/v7?ca_file=";
    EXPECT_EQ(error_of(registry(url + keys.file("ca.crt"))->ask(subject_, "1", {})), "");
    const auto refused = registry(url + keys.file("other.crt"))->ask(subject_, "1", {});
    EXPECT_THAT(error_of(refused),
                AllOf(HasSubstr("OB_CONNECT_FAILED"), HasSubstr("check ca_file")));
}

// A version is registered, then events are written by it.
TEST_F(SchemaRegistry, NoViolationOfTheLatestIsToldBeforeItWasAskedForAnew) {
    server_.add(subject_, kOrder);
    auto front = std::make_unique<Front>(server_.port());
    const RegistryLimits limits;
    SchemaCheck check(registry(front->url()), true);
    const auto prepared = [&](const char* payload, const char* version, bool at_once) {
        spi::Record record;
        record.id = "e-1";
        record.schema_id = subject_;
        record.schema_version = version;
        record.payload = payload;
        record.value = record.payload;
        prepare::Prepared out;
        const auto status = check.prepare_at_once(record, out);
        EXPECT_EQ(status.has_value(), at_once) << payload << version;
        const Status done = status ? *status : check.prepare(record, out, {});
        return done.ok() ? std::string() : describe(done.error());
    };
    EXPECT_EQ(prepared(R"({"quantity": 1})", "", false), "");
    EXPECT_EQ(prepared(R"({"quantity": 1})", "latest", true), "");
    server_.add(subject_,
                R"({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"})");
    now_ += limits.unknown_for;
    for (const char* version : {"latest", ""}) {
        EXPECT_EQ(prepared(R"({"quantity": 0})", version, *version == '\0'), "");
    }
    EXPECT_EQ(front->asked(subject_), 2U);
    EXPECT_THAT(prepared("[]", "", false), HasSubstr("OB_SCHEMA_VIOLATED"));
    EXPECT_EQ(front->asked(subject_), 2U) << "once a second at most";
    now_ += limits.unknown_for;
    EXPECT_THAT(prepared("[]", "", false), HasSubstr("OB_SCHEMA_VIOLATED"));
    EXPECT_EQ(front->asked(subject_), 3U);
    EXPECT_THAT(prepared(R"({"quantity": 0})", "1", false), HasSubstr("OB_SCHEMA_VIOLATED"));
    EXPECT_THAT(prepared(R"({"quantity": 0})", "1", true), HasSubstr("OB_SCHEMA_VIOLATED"));
    EXPECT_EQ(front->asked(subject_), 4U) << "what has a number stays what it is";
    front.reset();
    now_ += limits.unknown_for;
    EXPECT_THAT(prepared("[]", "", false), HasSubstr("OB_CONNECT_FAILED"));
    EXPECT_EQ(prepared(R"({"quantity": 0})", "", true), "");
}

TEST_F(SchemaRegistry, ChecksAndFramesRecords) {
    const std::uint32_t id = server_.add(subject_, kOrder);
    SchemaCheck plain(registry(server_.url()), false);
    SchemaCheck framed(registry(server_.url()), true);
    spi::Record record;
    record.id = "e-1";
    record.payload = R"({"quantity": 1})";
    record.value = record.payload;
    EXPECT_FALSE(plain.concerns(record)) << "it names no schema";
    EXPECT_TRUE(framed.concerns(record));
    prepare::Prepared out;
    const auto no_schema = framed.prepare_at_once(record, out);
    ASSERT_TRUE(no_schema && !no_schema->ok());
    EXPECT_EQ(no_schema->error().code, ErrorCode::kInvalidEvent);
    EXPECT_EQ(no_schema->error().advice, Advice::kDeadLetter);

    record.schema_id = subject_;
    record.schema_version = "1";
    EXPECT_FALSE(framed.prepare_at_once(record, out)) << "it has to be asked for";
    ASSERT_TRUE(framed.prepare(record, out, {}).ok());
    const std::string frame{'\0', static_cast<char>(id >> 24U), static_cast<char>(id >> 16U),
                            static_cast<char>(id >> 8U), static_cast<char>(id)};
    EXPECT_EQ(record.value, frame + R"({"quantity": 1})");

    record.payload = R"({"quantity": 0.5})";
    record.value = record.payload;
    const auto violated = framed.prepare_at_once(record, out);
    ASSERT_TRUE(violated && !violated->ok());
    EXPECT_EQ(violated->error().code, ErrorCode::kSchemaViolated);
    EXPECT_EQ(violated->error().advice, Advice::kDeadLetter);
    EXPECT_THAT(violated->error().message,
                AllOf(HasSubstr("/quantity"), HasSubstr("integer"), HasSubstr(subject_)));

    record.schema_version = "1.0";
    const auto no_version = plain.prepare_at_once(record, out);
    ASSERT_TRUE(no_version && !no_version->ok());
    EXPECT_EQ(no_version->error().code, ErrorCode::kInvalidEvent);

    record.payload = {};
    EXPECT_FALSE(framed.concerns(record)) << "a tombstone stays one";
}

}  // namespace
}  // namespace outbox::test
