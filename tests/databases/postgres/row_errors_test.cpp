#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>

#include "databases/postgres/stream/row_decoder.h"
#include "tests/databases/postgres/pgoutput_bytes.h"

namespace outbox::test {
namespace {

using postgres::RowDecoder;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kTable = 16'400;
constexpr std::int64_t kInt8 = 20;
constexpr std::int64_t kText = 25;
constexpr std::int64_t kFloat8 = 701;

// What no server sends, or only after DDL: a decoder of (position, id, payload).
class RowErrors : public testing::Test {
  protected:
    RowErrors() : decoder_(table()) {}

    static postgres::StreamTable table() {
        postgres::StreamTable table;
        table.oid = kTable;
        table.schema = "shop";
        table.name = "events";
        table.id_prefix = "shop.events:";
        table.columns[postgres::kPosition] = "position";
        table.columns[postgres::kId] = "id";
        table.columns[postgres::kPayload] = "payload";
        return table;
    }

    static Bytes relation(std::int64_t payload_type = kText, const char* payload = "payload") {
        return Bytes()
            .byte('R')
            .int32(kTable)
            .text("shop")
            .text("events")
            .byte('d')
            .int16(3)
            .column("position", kInt8)
            .column("id", kText)
            .column(payload, payload_type);
    }
    static Bytes insert(std::int64_t columns = 3) {
        return Bytes().byte('I').int32(kTable).byte('N').int16(columns);
    }
    static Bytes row(std::int64_t position) {
        return insert().binary(big_endian(position)).binary("a").binary("p");
    }

    Result<RowDecoder::Row> decode(std::string_view bytes) {
        postgres::pgoutput::Message message;
        const Status status = postgres::pgoutput::parse_message(bytes, message);
        if (!status.ok()) throw std::runtime_error(describe(status.error()));
        return decoder_.decode(message, batch_);
    }
    void announce() { ASSERT_TRUE(decode(relation()).ok()); }

    // The error, and that nothing was appended.
    ErrorInfo error(std::string_view bytes) {
        const std::size_t before = batch_.size();
        const auto row = decode(bytes);
        EXPECT_EQ(batch_.size(), before);
        return row.ok() ? ErrorInfo{} : row.error();
    }
    void expect_malformed(std::string_view bytes, const char* what) {
        const ErrorInfo found = error(bytes);
        EXPECT_EQ(found.code, ErrorCode::kQueryFailed);
        EXPECT_EQ(found.advice, Advice::kRetryDestination);
        EXPECT_THAT(found.message, HasSubstr(what));
    }
    void expect_shape(std::string_view bytes, const char* what) {
        const ErrorInfo found = error(bytes);
        EXPECT_EQ(found.code, ErrorCode::kTableShape);
        EXPECT_EQ(found.advice, Advice::kStop);
        EXPECT_THAT(found.message, AllOf(HasSubstr(what), HasSubstr("shop.events")));
    }

    RowDecoder decoder_;
    spi::EventBatch batch_;
};

TEST_F(RowErrors, TakesARowOnceItsTableIsAnnounced) {
    expect_malformed(row(1), "no Relation message announced the table");
    announce();
    const auto taken = decode(row(7));
    ASSERT_TRUE(taken.ok());
    EXPECT_EQ(*taken, RowDecoder::Row::kEvent);
    EXPECT_EQ(decoder_.position(), 7);
    ASSERT_EQ(batch_.size(), 1U);
    EXPECT_EQ(batch_.events()[0].id, "shop.events:a");
    EXPECT_EQ(batch_.events()[0].payload, "p");
    EXPECT_EQ(batch_.events()[0].key.data(), nullptr);
}

TEST_F(RowErrors, PassesOverOtherTables) {
    announce();
    for (const Bytes& bytes :
         {Bytes().byte('R').int32(1).text("shop").text("others").byte('d').int16(0),
          Bytes().byte('I').int32(1).byte('N').int16(0),
          Bytes().byte('T').int32(1).byte(0).int32(kTable),
          Bytes().byte('Y').int32(2).text("shop").text("mood")}) {
        const auto passed = decode(bytes);
        ASSERT_TRUE(passed.ok());
        EXPECT_EQ(*passed, RowDecoder::Row::kNone);
    }
    EXPECT_TRUE(decode(row(1)).ok());
}

TEST_F(RowErrors, RefusesRowsThatDoNotFitTheirTable) {
    announce();
    expect_malformed(insert(0), "has 0 columns; the table was announced with 3");
    expect_malformed(insert(2).binary(big_endian(1)).binary("a"), "has 2 columns");
    expect_malformed(insert(4).binary(big_endian(1)).binary("a").null().null(), "has 4 columns");
    expect_malformed(insert().binary("123").binary("a").null(), "'position'");
    expect_malformed(insert().null().binary("a").null(), "'position'");
    expect_malformed(insert().as_text("1").binary("a").null(), "'position'");
    expect_malformed(insert().binary(big_endian(1)).binary("a").unchanged(),
                     "'payload' of an insert into shop.events came without its value, at position "
                     "1");
    EXPECT_TRUE(decode(row(1)).ok());
}

TEST_F(RowErrors, RefusesRowsThatTheReaderRefuses) {
    announce();
    expect_shape(row(0), "holds position 0");
    expect_shape(row(-1), "holds position -1");
    expect_shape(insert().binary(big_endian(5)).null().null(),
                 "position 5 of shop.events has no id");
}

TEST_F(RowErrors, SaysWhichMappedColumnWentAway) {
    announce();
    expect_shape(relation(kText, "body"), "no column 'payload', which is payload");
    expect_malformed(row(1), "no Relation message");
    announce();
    EXPECT_TRUE(decode(row(1)).ok());
}

TEST_F(RowErrors, SaysWhichColumnTookATypeThatCannotBeDecoded) {
    expect_shape(relation(kFloat8),
                 "column 'payload' of shop.events, which is payload, has now a "
                 "type (oid 701)");
    expect_shape(relation(16'555), "oid 16555");
    // A domain is told by its base type.
    ASSERT_TRUE(decode(Bytes().byte('Y').int32(16'555).text("").text("jsonb")).ok());
    ASSERT_TRUE(decode(relation(16'555)).ok());
    expect_malformed(insert().binary(big_endian(1)).binary("a").binary(""),
                     "unknown jsonb version");
    expect_malformed(insert().binary(big_endian(1)).binary("a").binary("\2{}"), "jsonb version");
    ASSERT_TRUE(decode(insert().binary(big_endian(1)).binary("a").binary("\1{}")).ok());
    EXPECT_EQ(batch_.events()[0].payload, "{}");
}

TEST_F(RowErrors, SaysThatTheTableWasRenamedOrReplaced) {
    announce();
    expect_shape(Bytes().byte('R').int32(99).text("shop").text("events").byte('d').int16(0),
                 "was replaced by another of the same name (oid 99 in place of 16400)");
    expect_shape(Bytes().byte('R').int32(kTable).text("shop").text("old").byte('d').int16(0),
                 "is now called shop.old");
    expect_malformed(row(1), "no Relation message");
}

}  // namespace
}  // namespace outbox::test
