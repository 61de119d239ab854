// What the sink decides without a server.

#include <gtest/gtest.h>
#include <map>

#include "brokers/redis/batch.h"
#include "brokers/redis/config.h"
#include "brokers/redis/errors.h"

namespace outbox::redis {
namespace {

using Options = std::map<std::string, std::string>;

RedisConfig config_of(const std::string& url, const Options& options = {},
                      std::size_t max_repeats = 0) {
    return make_config(url, options, max_repeats).value_or_throw();
}

std::string refusal_of(const std::string& url, const Options& options = {}) {
    const auto config = make_config(url, options, 10'000);
    if (config.ok()) return "";
    EXPECT_EQ(config.error().advice, Advice::kStop);
    return config.error().message;
}

TEST(RedisConfig, ReadsItsUrl) {
    const auto config = config_of("redis://us%40er:p%2Fw@one:1000,two/3?max_len=500");
    ASSERT_EQ(config.hosts.size(), 2U);
    EXPECT_EQ(config.hosts[0].name, "one");
    EXPECT_EQ(config.hosts[0].port, 1000);
    EXPECT_EQ(config.hosts[1].name, "two");
    EXPECT_EQ(config.hosts[1].port, 6379);
    EXPECT_EQ(config.user, "us@er");
    EXPECT_EQ(config.password, "p/w");
    EXPECT_EQ(config.database, 3);
    EXPECT_EQ(config.max_len, 500);
    EXPECT_FALSE(config.tls);
}

TEST(RedisConfig, TakesOptionsWithAndWithoutThePrefix) {
    const auto config = config_of("rediss://[::1]",
                                  {{"redis.dedup_window", "20000"}, {"producer", "shop"}}, 20'000);
    EXPECT_EQ(config.hosts[0].name, "::1");
    EXPECT_TRUE(config.tls);
    EXPECT_EQ(config.database, 0);
    EXPECT_EQ(config.dedup_window, 20'000U);
    EXPECT_EQ(config.producer, "shop");
}

TEST(RedisConfig, TheWindowHoldsWhatMayComeAgain) {
    EXPECT_EQ(config_of("redis://h", {}, 500).dedup_window, 10'000U);
    EXPECT_EQ(config_of("redis://h", {}, 50'000).dedup_window, 50'000U);
    EXPECT_EQ(config_of("redis://h", {{"dedup_window", "0"}}, 50'000).dedup_window, 0U);
    const auto refused = make_config("redis://h", {{"dedup_window", "9999"}}, 10'000);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kGuaranteeRefused);
    EXPECT_NE(refused.error().message.find("max_unrecorded"), std::string::npos);
}

TEST(RedisConfig, SaysWhatIsWrong) {
    EXPECT_NE(refusal_of("redis://").find("no host"), std::string::npos);
    EXPECT_NE(refusal_of("redis://h:0").find("1 to 65535"), std::string::npos);
    EXPECT_NE(refusal_of("redis://h/shop").find("a database is a number"), std::string::npos);
    EXPECT_NE(refusal_of("redis://h?maxlen=5").find("no option 'maxlen'"), std::string::npos);
    EXPECT_NE(refusal_of("redis://h?max_len=-5").find("max_len"), std::string::npos);
    EXPECT_NE(refusal_of("redis://h?dedup_window=x").find("dedup_window"), std::string::npos);
    EXPECT_NE(refusal_of("redis://h?ca_file=x").find("rediss://"), std::string::npos);
    EXPECT_NE(refusal_of("redis://h", {{"producer", ""}}).find("producer"), std::string::npos);
    const auto password = refusal_of("redis://u:hidden@h?password_file=/f");
    EXPECT_NE(password.find("leave one"), std::string::npos);
    EXPECT_EQ(password.find("hidden"), std::string::npos);
}

TEST(RedisConfig, TellsAWayInClear) {
    EXPECT_EQ(transport_weakness(config_of("redis://localhost")), "");
    EXPECT_NE(transport_weakness(config_of("redis://far")).find("rediss://"), std::string::npos);
    EXPECT_EQ(transport_weakness(config_of("rediss://far")), "");
    EXPECT_NE(transport_weakness(config_of("rediss://far?verify=false")).find("redis.verify"),
              std::string::npos);
}

TEST(RedisErrors, TakesTheCommandsErrorOutOfTheScripts) {
    const auto code_of = [](const char* reply) {
        return to_error(fault_of_reply(reply), "it").backend_code;
    };
    EXPECT_EQ(code_of("OOM command not allowed when used memory > 'maxmemory'."), "OOM");
    EXPECT_EQ(code_of("ERR Error running script (call to f_0): @user_script:3: @user_script: 3: "
                      "-READONLY You can't write against a read only replica."),
              "READONLY");
    EXPECT_EQ(code_of("ERR Protocol error: invalid bulk length"), "TOO LARGE");
    EXPECT_EQ(code_of("UNBLOCKED force unblock from blocking operation, instance state changed "
                      "(master -> replica?)"),
              "READONLY");
    EXPECT_EQ(code_of("UNBLOCKED the stream key no longer exists"), "UNBLOCKED");
    EXPECT_EQ(code_of("ERR The user executing the script can't access at least one of the keys"),
              "NOPERM");
    const ErrorInfo other = to_error(fault_of_reply("ERR something new"), "Redis at h:1");
    EXPECT_EQ(other.code, ErrorCode::kSinkUnavailable);
    EXPECT_EQ(other.advice, Advice::kRetryDestination);
    EXPECT_NE(other.message.find("something new"), std::string::npos);
}

TEST(RedisBatch, IsOneCommand) {
    const spi::HeaderView headers[] = {{"id", "\"7\""}, {"type", "T"}};
    spi::Record record;
    record.topic = "orders";
    record.id = "7";
    record.value = "v";
    record.headers = headers;
    Batch batch;
    batch.reopen("old");
    batch.add(record);
    std::string text;
    batch.seal({"sha", "s", "i", 3, 4, 10, 0, std::chrono::seconds(60)}, text);
    EXPECT_EQ(text,
              "*20\r\n$7\r\nEVALSHA\r\n$3\r\nsha\r\n$1\r\n2\r\n$1\r\ns\r\n$1\r\ni\r\n$1\r\n3\r\n"
              "$1\r\n4\r\n$2\r\n10\r\n$1\r\n0\r\n$1\r\n1\r\n$2\r\n60\r\n$3\r\nold\r\n"
              "$6\r\norders\r\n$1\r\n6\r\n$2\r\nid\r\n$1\r\n7\r\n$5\r\nvalue\r\n$1\r\nv\r\n"
              "$4\r\ntype\r\n$1\r\nT\r\n");
    EXPECT_EQ(batch.bytes(), 0U);
}

TEST(RedisBatch, RefusesWhatAnEntryCannotHold) {
    const auto refusal = [](std::vector<spi::HeaderView> headers) {
        spi::Record record;
        record.id = "7";
        record.headers = headers;
        return why_not_carried(record).value_or("");
    };
    EXPECT_EQ(refusal({{"id", "7"}, {"type", "T"}}), "");
    EXPECT_NE(refusal({{"key", "x"}}).find("'key'"), std::string::npos);
    EXPECT_NE(refusal({{"value", "x"}}).find("'value'"), std::string::npos);
    // As format debezium writes it; the field is the event's id all the same.
    EXPECT_EQ(refusal({{"id", R"({"schema":{},"payload":"7"})"}}), "");
    EXPECT_NE(refusal(std::vector<spi::HeaderView>(3'501, {"a", "b"})).find("3501"),
              std::string::npos);
}

TEST(RedisConfig, StreamsAreNotNamedAsItsOwnKeys) {
    EXPECT_TRUE(check_stream_name("orders").ok());
    EXPECT_EQ(check_stream_name("outbox:x").error().code, ErrorCode::kTopicInvalid);
}

}  // namespace
}  // namespace outbox::redis
