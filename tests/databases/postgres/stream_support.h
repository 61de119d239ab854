#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include <outbox/producer/migrate.h>

#include "tests/databases/postgres/support.h"
#include "tests/support/eventually.h"

namespace outbox::test {

// A reader of the source that is turned by the test's thread.
class Route {
  public:
    explicit Route(spi::Source& source) : reader_(value_of(source.open_reader("default", {}))) {}

    // The payloads of what one read returns.
    std::vector<std::string> read(const spi::ReadLimits& limits = kAll) {
        spi::EventBatch batch;
        require(reader_->read(limits, batch));
        if (auto path = reader_->new_path()) {
            path_ = *path;
            paths_.push_back(path->path + ": " + path->reason);
        }
        std::vector<std::string> payloads;
        for (const spi::EventView& event : batch.events()) payloads.emplace_back(event.payload);
        return payloads;
    }

    // Reads until the stream is joined; what comes meanwhile is kept in `seen`.
    testing::AssertionResult joins(std::chrono::seconds deadline = std::chrono::seconds(120)) {
        return eventually(deadline, "the route is on the stream", [&] {
            const auto now = read();
            seen.insert(seen.end(), now.begin(), now.end());
            return path() == "stream";
        });
    }
    // Reads until `count` more events have come, and returns them.
    std::vector<std::string> next(std::size_t count) {
        std::vector<std::string> out;
        EXPECT_TRUE(eventually(std::chrono::seconds(60), "the events come", [&] {
            static_cast<void>(reader_->wait(std::chrono::milliseconds(1)));
            const auto now = read();
            out.insert(out.end(), now.begin(), now.end());
            return out.size() >= count;
        }));
        return out;
    }

    [[nodiscard]] const std::string& path() const { return path_.path; }
    [[nodiscard]] const std::string& reason() const { return path_.reason; }
    [[nodiscard]] const std::vector<std::string>& paths() const { return paths_; }
    spi::Reader& reader() { return *reader_; }

    std::vector<std::string> seen;

  private:
    std::unique_ptr<spi::Reader> reader_;
    spi::ReadPath path_;
    std::vector<std::string> paths_;
};

class StreamFixture : public testing::Test {
  protected:
    void SetUp() override { migrate_to(url_, layout()); }
    virtual TableLayoutKind layout() const { return TableLayoutKind::kDelete; }

    postgres::PostgresSourceConfig config() const {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.mode = postgres::Mode::kStream;
        return config;
    }

    static std::string insert(const std::string& payload, const std::string& key = "k") {
        return "INSERT INTO outbox_events (topic, key, payload) VALUES ('t', '" + key + "', '" +
               payload + "')";
    }
    // Leaves no row; only the stream has the event.
    static std::string insert_and_delete(const std::string& payload) {
        return "BEGIN; " + insert(payload) + "; DELETE FROM outbox_events WHERE payload = '" +
               payload + "'; COMMIT";
    }
    std::string slots() {
        return pg_.value(
            "SELECT count(*) FROM pg_replication_slots WHERE database = "
            "current_database()");
    }

    // Reads until the slot is being made; where a transaction is open it waits for that.
    testing::AssertionResult begins_to_join(Route& route) {
        return eventually(std::chrono::seconds(60), "a slot is being made", [&] {
            static_cast<void>(route.read());
            return slots() == "1";
        });
    }

    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
    std::unique_ptr<spi::Source> source_;

    spi::Source& source() {
        if (!source_) source_ = value_of(postgres::make_postgres_source(config()));
        return *source_;
    }
};

// Whatever becomes of published rows.
class Stream : public StreamFixture, public testing::WithParamInterface<TableLayoutKind> {
    TableLayoutKind layout() const override { return GetParam(); }
};

}  // namespace outbox::test
