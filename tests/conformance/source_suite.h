#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <outbox/spi/source.h>

namespace outbox::test {

// What every source must do, whatever the database. A backend gives a fixture, names what it can,
// and instantiates the suite:
//
//     INSTANTIATE_TEST_SUITE_P(Postgres, SourceSuite, testing::Values(make_my_fixture));

struct SuiteEvent {
    std::string id;  // a UUID
    std::optional<std::string> key;
    std::optional<std::string> payload;  // JSON
    std::optional<std::string> headers;  // JSON object
    std::optional<std::string> topic;
    std::string aggregate_type = "Order";
};

// An open transaction of an application. Ends by rollback when neither ended nor committed.
class SuiteTransaction {
  public:
    virtual ~SuiteTransaction() = default;
    virtual void emit(const SuiteEvent& event) = 0;
    virtual void savepoint() = 0;
    virtual void rollback_to_savepoint() = 0;
    virtual void commit() = 0;
    virtual void rollback() = 0;
};

struct SourceTraits {
    bool concurrent_writers = true;  // several transactions may write at the same time
    bool savepoints = true;
    bool scheduled = true;        // delayed events
    bool owner_seen_gone = true;  // the lease of a closed store is free at once
};

class SourceFixture {
  public:
    virtual ~SourceFixture() = default;
    virtual SourceTraits traits() const = 0;
    virtual std::unique_ptr<spi::Source> open() = 0;
    // Brings a reader of the empty table to the path that is to be tested.
    virtual void settle(spi::Reader&) {}
    virtual std::unique_ptr<SuiteTransaction> begin() = 0;
    // A delayed event of a day ago that is due now.
    virtual void schedule_due(const SuiteEvent& event) = 0;
    // What an operator does who wants a dead letter delivered again.
    virtual void request_retry(std::int64_t dead_id) = 0;
    // Rows in the outbox table that are not published.
    virtual std::int64_t unfinished_rows() = 0;
};

// The parameter makes the fixture, or gives none where the server cannot have it.
class SourceSuite : public testing::TestWithParam<std::function<std::unique_ptr<SourceFixture>()>> {
  protected:
    void SetUp() override;

    void commit(const std::vector<SuiteEvent>& events);
    // Reads until `count` events came or the deadline passed; the events' ids, in order.
    std::vector<std::string> read_ids(spi::Reader& reader, std::size_t count);
    // One read, for asserting that nothing comes.
    std::vector<std::string> read_once(spi::Reader& reader);
    std::unique_ptr<spi::Reader> reader();
    std::unique_ptr<spi::Recorder> recorder();
    std::unique_ptr<spi::LeaseStore> lease_store();
    bool removes() const { return source_->stable_positions() && !source_->keeps_rows(); }
    // A lease that is held until the test ends.
    std::uint64_t own_lease();
    // A term begins on what there is.
    spi::Beginning begin(spi::Recorder& recorder, std::uint64_t epoch,
                         const std::vector<std::string>& routes = {"default"});
    void finish(spi::Recorder& recorder, std::uint64_t epoch,
                const std::vector<spi::Position>& positions);

    std::unique_ptr<SourceFixture> fixture_;
    std::unique_ptr<spi::Source> source_;
    std::vector<spi::PositionRange> closed_;  // by the reads so far
    std::vector<spi::Position> positions_;    // likewise
    std::unique_ptr<spi::LeaseStore> held_lease_;
};

std::string suite_id(int number);
SuiteEvent suite_event(int number, const std::string& key = "k");

}  // namespace outbox::test
