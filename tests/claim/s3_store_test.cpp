// A real server of S3's protocol as an object store.

#include "claim/s3_store.h"

#include <fstream>

#include "tests/claim/s3_server.h"
#include "tests/claim/store_suite.h"
#include "tests/net/key_server.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

class S3Fixture final : public StoreFixture {
  public:
    std::unique_ptr<claim::ObjectStore> open() override {
        return claim::open_s3_store(server_.store()).value_or_throw();
    }
    std::string bytes_of(const std::string& name) override { return server_.read(name); }
    void remove(const std::string& name) override { server_.remove(name); }
    void go_down() override { server_.stop(); }
    void come_back() override { server_.start(); }

  private:
    S3Server& server_ = shared_s3();
};

const StoreFixtureFactory kS3 = [] { return std::make_unique<S3Fixture>(); };
INSTANTIATE_TEST_SUITE_P(S3, ObjectStoreConformance, testing::Values(kS3));

const std::string kName = claim::object_name("s", "1", net::sha256_hex("x"));

TEST(S3Store, WithAWrongSecretIsAtFaultItselfAndSaysSoWithoutIt) {
    const auto store =
        claim::open_s3_store(shared_s3().store("payloads", "wr0ng-secret")).value_or_throw();
    for (const Status& status : {store->put(kName, "x", {}), store->get(kName, 10, {}).status()}) {
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kAuthFailed) << describe(status.error());
        EXPECT_EQ(status.error().advice, Advice::kRetryDestination);
        EXPECT_NE(status.error().message.find("check the secret"), std::string::npos);
        EXPECT_EQ(status.error().message.find("wr0ng"), std::string::npos);
    }
}

TEST(S3Store, ReadsAKeyThatLacksARightAgainFromItsFile) {
    const KeyServer server;
    const TemporaryFolder folder("s3");
    const std::string file = (folder / "credentials").string();
    const auto write = [&](const std::string& id) {
        std::ofstream(file) << "[default]\naws_access_key_id = " << id
                            << "\naws_secret_access_key = s3cret\n";
    };
    write("POOR");
    const auto store =
        claim::open_s3_store("s3://payloads/x?endpoint=http://127.0.0.1:" +
                             std::to_string(server.port()) + "&credentials_file=" + file)
            .value_or_throw();
    const Status refused = store->put(kName, "x", {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kNoRights) << describe(refused.error());
    write("RICH");
    const Status put = store->put(kName, "x", {});
    EXPECT_TRUE(put.ok()) << describe(put.error());
}

TEST(S3Store, WithoutItsBucketIsDownUntilSomebodyMakesIt) {
    const auto store = claim::open_s3_store(shared_s3().store("not-there")).value_or_throw();
    const Status put = store->put(kName, "x", {});
    ASSERT_FALSE(put.ok());
    EXPECT_EQ(put.error().advice, Advice::kRetryDestination) << describe(put.error());
    EXPECT_NE(put.error().message.find("make the bucket"), std::string::npos);
    const auto got = store->get(kName, 10, {});
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().advice, Advice::kRetryDestination) << describe(got.error());
}

TEST(S3Store, ThatRefusesAnObjectRefusesThatOneAlone) {
    S3Server server("s3proxy.v4-max-non-chunked-request-size=100000");
    const auto store = claim::open_s3_store(server.store()).value_or_throw();
    const Status put = store->put(kName, std::string(200'000, 'l'), {});
    ASSERT_FALSE(put.ok());
    EXPECT_EQ(put.error().code, ErrorCode::kPayloadTooLarge) << describe(put.error());
    EXPECT_EQ(put.error().advice, Advice::kDeadLetter);
    EXPECT_TRUE(store->put(kName, std::string(90'000, 'l'), {}).ok());
}

TEST(S3Store, EndsItsWaitWhenItIsToldToStop) {
    shared_s3().pause();
    const auto store = claim::open_s3_store(shared_s3().store()).value_or_throw();
    std::stop_source stop;
    stop.request_stop();
    const Status put = store->put(kName, "x", stop.get_token());
    shared_s3().resume();
    ASSERT_FALSE(put.ok());
    EXPECT_EQ(put.error().backend_code, "STOPPED");
    EXPECT_EQ(put.error().advice, Advice::kRetryDestination);
}

TEST(S3Store, IsGivenItsKeyByAContainer) {
    const KeyServer keys;
    const Variables container(keys.container());
    keys.set("key", "relay");
    keys.set("secret", "wr0ng-secret");
    const std::string url =
        "s3://payloads/from/outbox?endpoint=http://127.0.0.1:" + std::to_string(shared_s3().port());
    const auto store = claim::open_s3_store(url).value_or_throw();
    // The container has two seconds to answer, which is no time for a process that others leave
    // none.
    std::size_t puts = 0;
    Status refused;
    ASSERT_TRUE(eventually(60s, "it is refused", [&] {
        ++puts;
        refused = store->put(kName, "x", {});
        return !refused.ok() &&
               refused.error().message.find("check the secret") != std::string::npos;
    })) << describe(refused.error());
    EXPECT_EQ(refused.error().code, ErrorCode::kAuthFailed) << describe(refused.error());
    // What was refused is not used again.
    keys.set("secret", "s3cret-key");
    Status put;
    EXPECT_TRUE(eventually(60s, "it is taken", [&] {
        ++puts;
        put = store->put(kName, "x", {});
        return put.ok();
    })) << describe(put.error());
    EXPECT_GE(keys.asked(), 2U);
    EXPECT_LE(keys.asked(), puts);
    EXPECT_EQ(claim::s3_key_origin(url).value_or_throw(),
              "the container's role (" + keys.url("/container") + ")");
}

TEST(S3Store, WithoutAKeyIsDownAndEndsItsWaitWhenItIsToldToStop) {
    const KeyServer keys;
    const Variables container(keys.container());
    const auto store = claim::open_s3_store("s3://payloads/from/outbox?endpoint=http://127.0.0.1:" +
                                            std::to_string(shared_s3().port()))
                           .value_or_throw();
    keys.set("mode", "refuse");
    const Status refused = store->put(kName, "x", {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().advice, Advice::kRetryDestination) << describe(refused.error());
    EXPECT_NE(refused.error().message.find("check that the task"), std::string::npos);
    keys.set("mode", "hang");
    std::stop_source stop;
    stop.request_stop();
    const Status stopped = store->put(kName, "x", stop.get_token());
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().message, "the relay stops");
}

}  // namespace
}  // namespace outbox::test
