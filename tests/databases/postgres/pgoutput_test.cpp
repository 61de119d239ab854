#include "databases/postgres/stream/pgoutput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "databases/postgres/source/decode.h"
#include "tests/databases/postgres/pgoutput_bytes.h"

namespace outbox::test {
namespace {

using namespace postgres::pgoutput;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kNewYear2024Pg = 757'382'400'000'000;    // microseconds since 2000
constexpr std::int64_t kNewYear2024Us = 1'704'067'200'000'000;  // since 1970

Bytes begin_bytes() {
    return Bytes().byte('B').int64(0x16B374D848).int64(kNewYear2024Pg).int32(4711);
}
Bytes commit_bytes() {
    return Bytes().byte('C').byte(0).int64(0x100).int64(0x130).int64(kNewYear2024Pg);
}
Bytes origin_bytes() {
    return Bytes().byte('O').int64(0x99).text("berlin");
}
Bytes relation_bytes() {
    return Bytes()
        .byte('R')
        .int32(16'400)
        .text("public")
        .text("outbox_events")
        .byte('d')
        .int16(2)
        .byte(1)
        .text("position")
        .int32(20)
        .int32(-1)
        .byte(0)
        .text("payload")
        .int32(1043)
        .int32(104);
}
Bytes type_bytes() {
    return Bytes().byte('Y').int32(16'500).text("shop").text("mood");
}
Bytes insert_bytes() {
    return Bytes()
        .byte('I')
        .int32(16'400)
        .byte('N')
        .int16(4)
        .binary(big_endian(7))
        .null()
        .as_text("words")
        .unchanged();
}
Bytes update_bytes() {
    return Bytes()
        .byte('U')
        .int32(16'400)
        .byte('K')
        .int16(2)
        .as_text("1")
        .null()
        .byte('N')
        .int16(2)
        .as_text("2")
        .unchanged();
}
Bytes delete_bytes() {
    return Bytes().byte('D').int32(16'400).byte('O').int16(1).as_text("1");
}
Bytes truncate_bytes() {
    return Bytes().byte('T').int32(2).byte(3).int32(16'400).int32(16'401);
}
Bytes message_bytes() {
    return Bytes().byte('M').byte(1).int64(0x77).text("outbox").int32(3).raw({"a\0b", 3});
}
Bytes xlog_bytes() {
    return Bytes().byte('w').int64(0x10).int64(0x20).int64(kNewYear2024Pg).raw("what it holds");
}
Bytes keepalive_bytes() {
    return Bytes().byte('k').int64(0x20).int64(kNewYear2024Pg).byte(1);
}

std::vector<Bytes> all_messages() {
    return {begin_bytes(),  commit_bytes(), origin_bytes(), relation_bytes(), type_bytes(),
            insert_bytes(), update_bytes(), delete_bytes(), truncate_bytes(), message_bytes()};
}

Message parsed(std::string_view bytes) {
    Message message;
    const Status status = parse_message(bytes, message);
    if (!status.ok()) throw std::runtime_error(describe(status.error()));
    return message;
}

std::string error_of(std::string_view bytes) {
    Message message;
    const Status status = parse_message(bytes, message);
    if (status.ok()) return "no error";
    EXPECT_EQ(status.error().advice, Advice::kRetryDestination);
    return status.error().message;
}

// As PostgreSQL's array_send writes it.
TEST(PostgresValues, AnArrayOfIntegersIsReadWholeOrNotAtAll) {
    const auto array = [] { return Bytes().int32(1).int32(0).int32(20).int32(2).int32(1); };
    const auto read = [](std::string_view bytes, std::vector<std::int64_t>& out) {
        return postgres::decode_integers({bytes.data(), bytes.size()}, out);
    };
    const Bytes whole = array().int32(8).int64(7).int32(8).int64(-1);
    std::vector<std::int64_t> out{5};
    EXPECT_TRUE(read(whole, out));
    EXPECT_THAT(out, ElementsAre(5, 7, -1));
    EXPECT_TRUE(read(Bytes().int32(0).int32(0).int32(20), out)) << "empty";
    EXPECT_TRUE(postgres::decode_integers({nullptr, 0}, out)) << "NULL: nothing was removed";
    EXPECT_THAT(out, ElementsAre(5, 7, -1));
    const std::string bytes(std::string_view{whole});
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
        EXPECT_FALSE(read(bytes.substr(0, cut), out)) << cut;
    }
    EXPECT_FALSE(read(bytes + "x", out));
    EXPECT_FALSE(read(array().int32(8).int64(7).int32(-1).int64(0), out)) << "a NULL";
}

TEST(Pgoutput, ReadsBegin) {
    const Message message = parsed(begin_bytes());
    EXPECT_EQ(message.kind, Kind::kBegin);
    EXPECT_EQ(message.lsn, 0x16B374D848U);
    EXPECT_EQ(message.commit_us, kNewYear2024Us);
    EXPECT_EQ(message.xid, 4711U);
}

TEST(Pgoutput, ReadsCommit) {
    const Message message = parsed(commit_bytes());
    EXPECT_EQ(message.kind, Kind::kCommit);
    EXPECT_EQ(message.lsn, 0x100U);
    EXPECT_EQ(message.end_lsn, 0x130U);
    EXPECT_EQ(message.commit_us, kNewYear2024Us);
}

TEST(Pgoutput, ReadsOrigin) {
    const Bytes bytes = origin_bytes();
    const Message message = parsed(bytes);
    EXPECT_EQ(message.kind, Kind::kOrigin);
    EXPECT_EQ(message.lsn, 0x99U);
    EXPECT_EQ(message.name, "berlin");
}

TEST(Pgoutput, ReadsRelation) {
    const Bytes bytes = relation_bytes();
    const Message message = parsed(bytes);
    EXPECT_EQ(message.kind, Kind::kRelation);
    EXPECT_EQ(message.relation, 16'400U);
    EXPECT_EQ(message.schema, "public");
    EXPECT_EQ(message.name, "outbox_events");
    EXPECT_EQ(message.replica_identity, 'd');
    ASSERT_EQ(message.columns.size(), 2U);
    EXPECT_EQ(message.columns[0].name, "position");
    EXPECT_TRUE(message.columns[0].key);
    EXPECT_EQ(message.columns[0].type_oid, 20U);
    EXPECT_EQ(message.columns[0].type_modifier, -1);
    EXPECT_EQ(message.columns[1].name, "payload");
    EXPECT_FALSE(message.columns[1].key);
    EXPECT_EQ(message.columns[1].type_modifier, 104);
}

TEST(Pgoutput, ReadsType) {
    const Bytes bytes = type_bytes();
    const Message message = parsed(bytes);
    EXPECT_EQ(message.kind, Kind::kType);
    EXPECT_EQ(message.type_oid, 16'500U);
    EXPECT_EQ(message.schema, "shop");
    EXPECT_EQ(message.name, "mood");
}

TEST(Pgoutput, ReadsInsertWithValuesThatPointIntoTheMessage) {
    const Bytes bytes = insert_bytes();
    const Message message = parsed(bytes);
    EXPECT_EQ(message.kind, Kind::kInsert);
    EXPECT_EQ(message.relation, 16'400U);
    ASSERT_EQ(message.row.size(), 4U);
    EXPECT_EQ(message.row[0].form, Value::Form::kBinary);
    EXPECT_EQ(message.row[0].bytes, big_endian(7));
    EXPECT_EQ(message.row[1].form, Value::Form::kNull);
    EXPECT_EQ(message.row[2].form, Value::Form::kText);
    EXPECT_EQ(message.row[2].bytes, "words");
    EXPECT_GE(message.row[2].bytes.data(), bytes.str().data());
    EXPECT_LT(message.row[2].bytes.data(), bytes.str().data() + bytes.str().size());
    EXPECT_EQ(message.row[3].form, Value::Form::kUnchanged);
}

TEST(Pgoutput, ReadsUpdateWithAndWithoutTheOldRow) {
    const Bytes bytes = update_bytes();
    const Message message = parsed(bytes);
    EXPECT_EQ(message.kind, Kind::kUpdate);
    EXPECT_EQ(message.old_form, 'K');
    ASSERT_EQ(message.old_row.size(), 2U);
    EXPECT_EQ(message.old_row[0].bytes, "1");
    ASSERT_EQ(message.row.size(), 2U);
    EXPECT_EQ(message.row[0].bytes, "2");

    const Bytes plain = Bytes().byte('U').int32(1).byte('N').int16(1).as_text("2");
    const Message without = parsed(plain);
    EXPECT_EQ(without.old_form, 0);
    EXPECT_TRUE(without.old_row.empty());
    EXPECT_EQ(without.row.size(), 1U);
}

TEST(Pgoutput, ReadsDelete) {
    const Bytes bytes = delete_bytes();
    const Message message = parsed(bytes);
    EXPECT_EQ(message.kind, Kind::kDelete);
    EXPECT_EQ(message.relation, 16'400U);
    EXPECT_EQ(message.old_form, 'O');
    ASSERT_EQ(message.old_row.size(), 1U);
    EXPECT_EQ(message.old_row[0].bytes, "1");
}

TEST(Pgoutput, ReadsTruncate) {
    const Message message = parsed(truncate_bytes());
    EXPECT_EQ(message.kind, Kind::kTruncate);
    EXPECT_TRUE(message.cascade);
    EXPECT_TRUE(message.restart_identity);
    EXPECT_THAT(message.truncated, ElementsAre(16'400U, 16'401U));
}

TEST(Pgoutput, ReadsLogicalMessages) {
    const Bytes bytes = message_bytes();
    const Message message = parsed(bytes);
    EXPECT_EQ(message.kind, Kind::kMessage);
    EXPECT_TRUE(message.transactional);
    EXPECT_EQ(message.lsn, 0x77U);
    EXPECT_EQ(message.prefix, "outbox");
    EXPECT_EQ(message.content, std::string_view("a\0b", 3));
}

TEST(Pgoutput, ReusesAMessageWithoutLeavingsOfTheOneBefore) {
    Message message;
    for (int round = 0; round < 2; ++round) {
        for (const Bytes& bytes : all_messages()) ASSERT_TRUE(parse_message(bytes, message).ok());
    }
    const Bytes bytes = Bytes().byte('I').int32(1).byte('N').int16(1).null();
    ASSERT_TRUE(parse_message(bytes, message).ok());
    EXPECT_EQ(message.row.size(), 1U);
}

TEST(Pgoutput, SaysOfEveryTruncatedMessageWhereItEnds) {
    for (const Bytes& whole : all_messages()) {
        for (std::size_t size = 0; size < whole.str().size(); ++size) {
            // A buffer of that very size, so that AddressSanitizer sees a read beyond it.
            const auto cut = std::make_unique<char[]>(size);
            std::copy_n(whole.str().data(), size, cut.get());
            EXPECT_THAT(error_of({cut.get(), size}),
                        HasSubstr("of " + std::to_string(size) + " bytes is wrong at byte "));
        }
    }
}

TEST(Pgoutput, RefusesBytesBehindAMessage) {
    for (const Bytes& whole : all_messages()) {
        EXPECT_THAT(error_of(whole.str() + "x"), HasSubstr("(end)")) << whole.str()[0];
    }
}

TEST(Pgoutput, RefusesHostileLengths) {
    for (const std::int64_t length : {6LL, 0x7FFF'FFFFLL, 0x8000'0000LL, 0xFFFF'FFFFLL}) {
        EXPECT_THAT(
            error_of(
                Bytes().byte('I').int32(1).byte('N').int16(1).byte('b').int32(length).raw("12345")),
            HasSubstr("bytes of a column"));
        EXPECT_THAT(error_of(Bytes().byte('M').byte(0).int64(1).text("p").int32(length).raw("123")),
                    HasSubstr("content"));
    }
    EXPECT_THAT(error_of(Bytes().byte('I').int32(1).byte('N').int16(0xFFFF).null()),
                HasSubstr("kind of a column"));
    EXPECT_THAT(error_of(Bytes().byte('R').int32(1).text("s").text("t").byte('d').int16(0xFFFF)),
                HasSubstr("flags of a column"));
    EXPECT_THAT(error_of(Bytes().byte('T').int32(0xFFFF'FFFF).byte(0).int32(1)), HasSubstr("oid"));
}

TEST(Pgoutput, RefusesUnknownKinds) {
    EXPECT_THAT(error_of(Bytes().byte('I').int32(1).byte('K').int16(0)),
                HasSubstr("kind of the row"));
    EXPECT_THAT(error_of(Bytes().byte('D').int32(1).byte('N').int16(0)),
                HasSubstr("kind of the row"));
    EXPECT_THAT(error_of(Bytes().byte('U').int32(1).byte('K').int16(0).byte('K').int16(0)),
                HasSubstr("kind of the row"));
    EXPECT_THAT(error_of(Bytes().byte('I').int32(1).byte('N').int16(1).byte('x').int32(0)),
                HasSubstr("kind of a column"));
    EXPECT_THAT(
        error_of(Bytes().byte('S').int32(1).byte(1)),
        HasSubstr("message 'S' of 6 bytes is wrong at byte 1 (kind, which protocol version 1"));
    EXPECT_THAT(error_of(Bytes().byte(0xFF)), HasSubstr("message 0xff"));
    EXPECT_THAT(error_of(""), HasSubstr("message without a kind of 0 bytes"));
}

TEST(Pgoutput, CountsTimesThatDoNotFitAsUnknown) {
    for (const std::int64_t time : {INT64_MAX, INT64_MAX - 1, INT64_MIN}) {
        EXPECT_EQ(parsed(Bytes().byte('B').int64(1).int64(time).int32(1)).commit_us, 0);
    }
    EXPECT_EQ(parsed(Bytes().byte('B').int64(1).int64(INT64_MIN + 1).int32(1)).commit_us,
              INT64_MIN + 1 + 946'684'800'000'000);
}

Envelope opened(std::string_view bytes) {
    Envelope envelope;
    const Status status = parse_envelope(bytes, envelope);
    if (!status.ok()) throw std::runtime_error(describe(status.error()));
    return envelope;
}

TEST(ReplicationEnvelope, HoldsDataOrAKeepalive) {
    const Bytes data = xlog_bytes();
    Envelope envelope = opened(data);
    EXPECT_FALSE(envelope.keepalive);
    EXPECT_EQ(envelope.start_lsn, 0x10U);
    EXPECT_EQ(envelope.end_lsn, 0x20U);
    EXPECT_EQ(envelope.sent_us, kNewYear2024Us);
    EXPECT_EQ(envelope.message, "what it holds");
    EXPECT_FALSE(envelope.reply_requested);

    ASSERT_TRUE(parse_envelope(keepalive_bytes(), envelope).ok());
    EXPECT_TRUE(envelope.keepalive);
    EXPECT_EQ(envelope.end_lsn, 0x20U);
    EXPECT_EQ(envelope.sent_us, kNewYear2024Us);
    EXPECT_TRUE(envelope.reply_requested);
    EXPECT_TRUE(envelope.message.empty());
}

TEST(ReplicationEnvelope, MayHoldAnEmptyMessage) {
    const Bytes bytes = Bytes().byte('w').int64(1).int64(2).int64(3);
    EXPECT_TRUE(opened(bytes).message.empty());
}

TEST(ReplicationEnvelope, RefusesWhatIsCutOrUnknown) {
    Envelope envelope;
    for (std::size_t size = 0; size < 25; ++size) {
        EXPECT_FALSE(parse_envelope(xlog_bytes().str().substr(0, size), envelope).ok()) << size;
    }
    for (std::size_t size = 0; size < 18; ++size) {
        EXPECT_FALSE(parse_envelope(keepalive_bytes().str().substr(0, size), envelope).ok());
    }
    EXPECT_FALSE(parse_envelope(keepalive_bytes().str() + "x", envelope).ok());
    const Status status = parse_envelope("z123", envelope);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("CopyData 'z' of 4 bytes"));
}

TEST(ReplicationEnvelope, AnswersWithAStatusUpdate) {
    const auto bytes = status_update(0x30, 0x20, 0x10, kNewYear2024Us, true);
    EXPECT_EQ(
        std::string_view(bytes.data(), bytes.size()),
        Bytes().byte('r').int64(0x30).int64(0x20).int64(0x10).int64(kNewYear2024Pg).byte(1).str());
}

TEST(LogPlaces, ArePrintedAndReadAsPostgresqlDoes) {
    EXPECT_EQ(format_lsn(0x16B374D848), "16/B374D848");
    EXPECT_EQ(format_lsn(0), "0/0");
    EXPECT_EQ(parse_lsn("16/B374D848"), 0x16B374D848U);
    EXPECT_EQ(parse_lsn("FFFFFFFF/FFFFFFFF"), ~std::uint64_t{0});
    for (const char* wrong : {"", "/", "16", "16/", "/1", "16/x", "16/1 ", "1G/1", "100000000/0"}) {
        EXPECT_EQ(parse_lsn(wrong), std::nullopt) << wrong;
    }
}

}  // namespace
}  // namespace outbox::test
