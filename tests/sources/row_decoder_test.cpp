#include "sources/postgres/row_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/producer/migrate.h>

#include "tests/sources/decoder_support.h"

namespace outbox::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DecodedTable : public testing::Test {
  protected:
    postgres::PostgresSourceConfig config(const std::string& table = "outbox_events") const {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.table = table;
        return config;
    }
    LoggedTable logged(const std::string& table = "outbox_events") {
        return LoggedTable(url_, config(table));
    }

    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
};

class NativePayload : public DecodedTable, public testing::WithParamInterface<PayloadType> {};

TEST_P(NativePayload, GivesWhatTheReaderGives) {
    MigrateOptions options;
    options.payload = GetParam();
    migrate(url_, options);
    LoggedTable logged(url_, config());
    auto decoder = logged.decoder();
    EXPECT_THAT(logged.described().obstacles, IsEmpty());
    pg_.exec(
        "SELECT outbox_emit(topic => 't', payload => '{\"b\": [1, 2.50, null], \"a\": \"ü\"}', "
        "headers => '{\"x\": \"1\"}', traceparent => '00-1', aggregate_type => 'Order', "
        "aggregate_id => 'o-1', event_type => 'Made', key => 'k', tenant_id => 'acme', "
        "routing_key => '', schema_id => '7', schema_version => '1.2'); "
        "INSERT INTO outbox_events (topic, payload) SELECT 't', NULL FROM generate_series(1, 5); "
        "INSERT INTO outbox_events (topic, occurred_at) VALUES ('t', 'infinity'), "
        "('t', '-infinity'), ('t', '1969-12-31 23:59:59.999999+00'), ('t', '294276-12-31+00')");
    const Decoded decoded = logged.decode(decoder);
    ASSERT_TRUE(decoded.status.ok()) << describe(decoded.status.error());
    EXPECT_EQ(shown(decoded.batch), shown(logged.read()));
    EXPECT_EQ(decoded.batch.size(), 10U);
}

INSTANTIATE_TEST_SUITE_P(, NativePayload,
                         testing::Values(PayloadType::kJsonb, PayloadType::kJson,
                                         PayloadType::kText, PayloadType::kBytea));

}  // namespace
}  // namespace outbox::test
