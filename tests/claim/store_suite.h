#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "claim/claim.h"
#include "claim/object_store.h"
#include "net/sha256.h"

// What every object store must do. A store's test includes this file, writes a `StoreFixture`, and
// instantiates the suite.

namespace outbox::test {

/// A store and how to look into it.
class StoreFixture {
  public:
    StoreFixture() = default;
    StoreFixture(const StoreFixture&) = delete;
    StoreFixture& operator=(const StoreFixture&) = delete;
    virtual ~StoreFixture() = default;

    virtual std::unique_ptr<claim::ObjectStore> open() = 0;
    /// The bytes of an object, by another client than our own.
    virtual std::string bytes_of(const std::string& name) = 0;
    virtual void remove(const std::string& name) = 0;
    virtual void go_down() = 0;
    virtual void come_back() = 0;
};

using StoreFixtureFactory = std::function<std::unique_ptr<StoreFixture>()>;

class ObjectStoreConformance : public testing::TestWithParam<StoreFixtureFactory> {
  protected:
    void SetUp() override { fixture_ = GetParam()(); }
    static std::string name_for(const std::string& id) {
        return claim::object_name("suite", id, net::sha256_hex(id));
    }
    static constexpr std::size_t kMost = std::size_t{64} << 20;
    std::unique_ptr<StoreFixture> fixture_;
};

TEST_P(ObjectStoreConformance, GivesBackWhatWasWritten) {
    const auto store = fixture_->open();
    std::string all_bytes;
    for (int byte = 0; byte < 256; ++byte) all_bytes += static_cast<char>(byte);
    const std::string large = std::string(std::size_t{5} << 20, 'x') + all_bytes;
    for (const std::string& bytes : {std::string(), all_bytes, large}) {
        const std::string name = name_for("size " + std::to_string(bytes.size()));
        const Status put = store->put(name, bytes, {});
        ASSERT_TRUE(put.ok()) << describe(put.error());
        EXPECT_TRUE(fixture_->bytes_of(name) == bytes) << bytes.size();
        const auto got = fixture_->open()->get(name, kMost, {});
        ASSERT_TRUE(got.ok()) << describe(got.error());
        EXPECT_TRUE(*got == bytes) << bytes.size();
    }
}

TEST_P(ObjectStoreConformance, WritesOverAnObjectOfTheSameName) {
    const auto store = fixture_->open();
    const std::string name = name_for("twice");
    ASSERT_TRUE(store->put(name, "first and longer", {}).ok());
    ASSERT_TRUE(store->put(name, "second", {}).ok());
    EXPECT_EQ(fixture_->bytes_of(name), "second");
    EXPECT_EQ(store->get(name, kMost, {}).value_or_throw(), "second");
}

TEST_P(ObjectStoreConformance, SaysOfAnObjectThatIsNotThereThatItIsGone) {
    const auto store = fixture_->open();
    const std::string name = name_for("gone");
    ASSERT_TRUE(store->put(name, "here today", {}).ok());
    fixture_->remove(name);
    for (const std::string& missing : {name, name_for("never")}) {
        const auto got = store->get(missing, kMost, {});
        ASSERT_FALSE(got.ok());
        EXPECT_EQ(got.error().code, ErrorCode::kObjectGone) << describe(got.error());
        EXPECT_EQ(got.error().advice, Advice::kDeadLetter);
        EXPECT_NE(got.error().message.find(missing), std::string::npos) << got.error().message;
    }
}

TEST_P(ObjectStoreConformance, TakesNoMoreBytesThanItMay) {
    const auto store = fixture_->open();
    const std::string name = name_for("large");
    ASSERT_TRUE(store->put(name, std::string(200'000, 'l'), {}).ok());
    const auto got = fixture_->open()->get(name, 199'999, {});
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().code, ErrorCode::kPayloadTooLarge) << describe(got.error());
    EXPECT_EQ(got.error().advice, Advice::kDeadLetter);
    EXPECT_EQ(store->get(name, 200'000, {}).value_or_throw().size(), 200'000U);
}

TEST_P(ObjectStoreConformance, PassesItsCheckAgainAndAgain) {
    const auto store = fixture_->open();
    for (int i = 0; i < 2; ++i) {
        const Status status = claim::check(*store);
        EXPECT_TRUE(status.ok()) << describe(status.error());
    }
}

TEST_P(ObjectStoreConformance, IsDownAndNotAtOddsWithAnObjectWhileItIsAway) {
    const auto store = fixture_->open();
    const std::string name = name_for("kept");
    ASSERT_TRUE(store->put(name, "kept", {}).ok());
    fixture_->go_down();
    const Status put = store->put(name_for("later"), "later", {});
    const auto got = store->get(name, kMost, {});
    const Status checked = claim::check(*store);
    fixture_->come_back();
    ASSERT_FALSE(put.ok());
    EXPECT_EQ(put.error().advice, Advice::kRetryDestination) << describe(put.error());
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().advice, Advice::kRetryDestination) << describe(got.error());
    EXPECT_FALSE(checked.ok());
    EXPECT_EQ(store->get(name, kMost, {}).value_or_throw(), "kept");
    EXPECT_TRUE(store->put(name_for("later"), "later", {}).ok());
}

}  // namespace outbox::test
