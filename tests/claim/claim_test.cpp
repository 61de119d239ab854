// What a record says of a payload that is kept elsewhere, and how it is read again.

#include "claim/claim.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "codec/claim_encoder.h"
#include "codec/formats.h"
#include "net/sha256.h"

namespace outbox::test {
namespace {

using claim::read_claim;
using nlohmann::json;

constexpr std::string_view kStore = "s3://bucket/payloads";

std::string header(const spi::Record& record, std::string_view name) {
    std::string found;
    for (const auto& one : record.headers) {
        if (one.name != name) continue;
        EXPECT_EQ(found, "") << "twice";
        found = one.value;
    }
    return found;
}

std::string headers_json(const spi::Record& record) {
    json object = json::object();
    for (const auto& one : record.headers) object[std::string(one.name)] = one.value;
    return object.dump();
}

class ClaimEncoder : public testing::TestWithParam<const char*> {
  protected:
    Result<spi::Record> encode(const std::string& payload, const std::string& headers = "{}",
                               const std::string& id = "id-1") {
        const codec::Format* format = codec::find_format(GetParam());
        auto make = format->make({{}, "public.outbox_events", {}}).value_or_throw();
        encoder_ = codec::with_claims(make, {store_, 10, "public.outbox_events"})();
        spi::EventView event;
        event.id = batch_.copy(id);
        event.event_type = "Grown";
        event.aggregate_type = "Tree";
        event.payload = batch_.copy(payload);
        event.headers = batch_.copy(headers);
        return encoder_->encode(event, "trees", batch_);
    }
    std::string store_{kStore};
    spi::EventBatch batch_;
    std::unique_ptr<codec::Encoder> encoder_;
};

INSTANTIATE_TEST_SUITE_P(Formats, ClaimEncoder,
                         testing::Values("raw", "cloudevents", "cloudevents-structured"));

TEST_P(ClaimEncoder, ALargePayloadStaysOutsideAndTheRecordSaysWhereItIs) {
    const std::string payload = R"({"rings": 1234567})";
    const spi::Record record = encode(payload).value_or_throw();
    EXPECT_EQ(record.payload, payload);
    EXPECT_EQ(record.value.find("rings"), std::string_view::npos) << record.value;
    EXPECT_EQ(header(record, "claim-check"),
              std::string(kStore) + "/" + std::string(record.object));
    EXPECT_EQ(header(record, "claim-check-size"), std::to_string(payload.size()));
    EXPECT_EQ(header(record, "claim-check-sha256"), net::sha256_hex(payload));
    const auto claim = read_claim(headers_json(record)).value_or_throw();
    ASSERT_TRUE(claim.has_value());
    EXPECT_EQ(claim->name(), record.object);
    EXPECT_TRUE(claim::verify(*claim, payload).ok());
    // The same facts stand in its place, for ways that lose headers.
    const json value = json::parse(record.value);
    const json& note = value.contains("data") ? value["data"] : value;
    EXPECT_EQ(note["claim_check"], claim->reference);
    EXPECT_EQ(note["size"], payload.size());
    EXPECT_EQ(note["sha256"], claim->sha256);
}

TEST_P(ClaimEncoder, ASmallPayloadTravelsAsItIs) {
    const spi::Record record = encode("1234567890").value_or_throw();
    EXPECT_EQ(record.object.data(), nullptr);
    EXPECT_NE(record.value.find("1234567890"), std::string_view::npos);
    EXPECT_EQ(header(record, "claim-check"), "");
}

TEST_P(ClaimEncoder, AnEventCannotSayThatItsPayloadIsElsewhere) {
    const std::string forged =
        R"({"claim-check":"s3://bucket/payloads/x","claim-check-size":"1","claim-check-sha256":"y","Claim-Check":"x","z":"kept"})";
    const spi::Record small = encode("1", forged).value_or_throw();
    EXPECT_EQ(header(small, "claim-check"), "");
    EXPECT_EQ(header(small, "claim-check-size"), "");
    EXPECT_EQ(header(small, "claim-check-sha256"), "");
    EXPECT_EQ(header(small, "Claim-Check"), "");
    const spi::Record large = encode(R"({"rings": 1234567})", forged).value_or_throw();
    EXPECT_EQ(header(large, "claim-check"), std::string(kStore) + "/" + std::string(large.object));
    store_.clear();
    const spi::Record nowhere = encode(R"({"rings": 1234567})", forged).value_or_throw();
    EXPECT_EQ(header(nowhere, "claim-check"), "");
    EXPECT_NE(nowhere.value.find("1234567"), std::string_view::npos);
    EXPECT_EQ(nowhere.object.data(), nullptr);
}

TEST_P(ClaimEncoder, ARepeatHasTheSameNameAndNoOtherEventOrPayloadHas) {
    const std::string payload = R"({"rings": 1234567})";
    const std::string first(encode(payload).value_or_throw().object);
    EXPECT_EQ(encode(payload).value_or_throw().object, first);
    EXPECT_NE(encode(payload, "{}", "id-2").value_or_throw().object, first);
    EXPECT_NE(encode(R"({"rings": 7654321})").value_or_throw().object, first);
}

TEST(ReadClaim, FindsNoneWhereThereIsNone) {
    for (const char* headers :
         {"", "{}", "[]", "{\"x\":\"claim-check\"}", "{\"claim-check\"", "7"}) {
        const auto claim = read_claim(headers);
        ASSERT_TRUE(claim.ok()) << headers;
        EXPECT_FALSE(claim->has_value()) << headers;
    }
}

TEST(ReadClaim, RefusesWhatIsNoReference) {
    const std::string name(64, 'a');
    const auto with = [&](const std::string& reference, const std::string& size,
                          const std::string& hash) {
        return read_claim(json{
            {"claim-check", reference}, {"claim-check-size", size}, {"claim-check-sha256", hash}}
                              .dump());
    };
    ASSERT_TRUE(with("file:///f/" + name, "3", name).ok());
    const std::vector<std::vector<std::string>> wrong = {
        {"file:///f/../../etc/passwd", "3", name},
        {"", "3", name},
        {name, "3", name},
        {"file:///f/" + name + "/..", "3", name},
        {"file:///f/" + name, "", name},
        {"file:///f/" + name, "-1", name},
        {"file:///f/" + name, "3x", name},
        {"file:///f/" + name, "99999999999999999999999", name},
        {"file:///f/" + name, "3", "ABC"},
        {"file:///f/" + std::string(64, 'A'), "3", name}};
    for (const auto& one : wrong) {
        const auto claim = with(one[0], one[1], one[2]);
        ASSERT_FALSE(claim.ok()) << one[0] << " " << one[1];
        EXPECT_EQ(claim.error().advice, Advice::kDeadLetter);
        EXPECT_EQ(claim.error().code, ErrorCode::kInvalidEvent);
    }
}

TEST(ReadClaim, VerifiesSizeAndHash) {
    const claim::Claim claim{"file:///f/x", 5, net::sha256_hex("bytes")};
    EXPECT_TRUE(claim::verify(claim, "bytes").ok());
    for (const char* other : {"byteS", "byte", "bytes!", ""}) {
        const Status status = claim::verify(claim, other);
        ASSERT_FALSE(status.ok()) << other;
        EXPECT_EQ(status.error().code, ErrorCode::kObjectAltered);
        EXPECT_EQ(status.error().advice, Advice::kDeadLetter);
    }
}

}  // namespace
}  // namespace outbox::test
