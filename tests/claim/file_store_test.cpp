// A folder as an object store.

#include "claim/file_store.h"

#include <filesystem>
#include <fstream>

#include "tests/claim/store_suite.h"
#include "tests/support/files.h"

namespace outbox::test {
namespace {

class FolderFixture final : public StoreFixture {
  public:
    FolderFixture() { std::filesystem::create_directory(path_); }
    std::unique_ptr<claim::ObjectStore> open() override {
        return claim::open_file_store("file://" + path_.string()).value_or_throw();
    }
    std::string bytes_of(const std::string& name) override { return read_file(file(name)); }
    void remove(const std::string& name) override { std::filesystem::remove(file(name)); }
    void go_down() override { std::filesystem::rename(path_, folder_ / "unmounted"); }
    void come_back() override { std::filesystem::rename(folder_ / "unmounted", path_); }

    std::filesystem::path path() const { return path_; }
    std::filesystem::path outside() const { return folder_ / "outside"; }
    std::filesystem::path file(const std::string& name) const {
        return path_ / name.substr(0, 2) / name;
    }

  private:
    TemporaryFolder folder_{"claims"};
    std::filesystem::path path_ = folder_ / "store";
};

const StoreFixtureFactory kFolder = [] { return std::make_unique<FolderFixture>(); };
INSTANTIATE_TEST_SUITE_P(Folder, ObjectStoreConformance, testing::Values(kFolder));

TEST(FileStore, FollowsNoLinkOutOfItsFolder) {
    FolderFixture fixture;
    const auto store = fixture.open();
    std::filesystem::create_directory(fixture.outside());
    const std::string name = claim::object_name("s", "1", net::sha256_hex("x"));
    std::filesystem::create_directory_symlink(fixture.outside(),
                                              fixture.path() / name.substr(0, 2));
    EXPECT_FALSE(store->put(name, "x", {}).ok());
    EXPECT_TRUE(std::filesystem::is_empty(fixture.outside()));
    std::filesystem::remove(fixture.path() / name.substr(0, 2));
    std::filesystem::create_directory(fixture.path() / name.substr(0, 2));
    std::ofstream(fixture.outside() / "secret") << "x";
    std::filesystem::create_symlink(fixture.outside() / "secret", fixture.file(name));
    EXPECT_FALSE(store->get(name, 100, {}).ok());
}

TEST(FileStore, LeavesNothingBesideItsObjects) {
    FolderFixture fixture;
    const auto store = fixture.open();
    const std::string name = claim::object_name("s", "1", net::sha256_hex("x"));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(store->put(name, "x", {}).ok());
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(fixture.path())) {
        files += entry.is_regular_file() ? 1 : 0;
    }
    EXPECT_EQ(files, 1U);
}

TEST(FileStore, MakesNoFolderThatIsNotThere) {
    TemporaryFolder folder("claims");
    const auto store =
        claim::open_file_store("file://" + (folder / "not-mounted").string()).value_or_throw();
    const Status put = store->put(claim::object_name("s", "1", "x"), "x", {});
    ASSERT_FALSE(put.ok());
    EXPECT_EQ(put.error().advice, Advice::kRetryDestination);
    EXPECT_FALSE(std::filesystem::exists(folder / "not-mounted"));
}

// The folder that a volume is mounted on is there without it, too.
TEST(FileStore, WithoutAnythingInItIsAnOutageAndNoneOfItsObjectsIsGone) {
    TemporaryFolder folder("claims");
    std::filesystem::create_directory(folder / "store");
    const auto store =
        claim::open_file_store("file://" + (folder / "store").string()).value_or_throw();
    const std::string name = claim::object_name("s", "1", "x");
    const auto none = store->get(name, 10, {});
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().advice, Advice::kRetryDestination);
    EXPECT_NE(none.error().message.find("mount what holds it"), std::string::npos);
    // doctor and --check look, too.
    ASSERT_TRUE(claim::check(*store).ok());
    EXPECT_EQ(store->get(name, 10, {}).error().advice, Advice::kRetryDestination);
    ASSERT_TRUE(store->put(claim::object_name("s", "2", "x"), "x", {}).ok());
    EXPECT_EQ(store->get(name, 10, {}).error().code, ErrorCode::kObjectGone);
}

TEST(FileStore, SaysWhatIsWrongWithItsUrl) {
    for (const char* url :
         {"file:", "file:relative", "file://host/folder", "file:///", "file:///f?mode=7"}) {
        const auto opened = claim::open_file_store(url);
        ASSERT_FALSE(opened.ok()) << url;
        EXPECT_EQ(opened.error().code, ErrorCode::kConfigInvalid);
        EXPECT_NE(opened.error().message.find("file:///absolute/path"), std::string::npos);
    }
}

}  // namespace
}  // namespace outbox::test
