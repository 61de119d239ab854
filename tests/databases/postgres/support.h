#pragma once

#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <outbox/producer/migrate.h>
#include <outbox/spi/source.h>

#include "databases/postgres/source/source.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {

// For suites that hold whatever becomes of published rows.
//     INSTANTIATE_TEST_SUITE_P(Layouts, MySuite, kEachLayout, name_of_layout);
inline const auto kEachLayout = testing::Values(TableLayoutKind::kDelete, TableLayoutKind::kKeep);
inline std::string name_of_layout(const testing::TestParamInfo<TableLayoutKind>& info) {
    return info.param == TableLayoutKind::kKeep ? "Keep" : "Delete";
}
// To be called by SetUp.
inline void migrate_to(const std::string& url, TableLayoutKind kind) {
    if (kind == TableLayoutKind::kKeep && Pg(url).number("SHOW server_version_num") < 150000) {
        GTEST_SKIP() << "PostgreSQL 14 has one layout";
    }
    MigrateOptions options;
    options.layout = kind;
    migrate(url, options);
}

inline constexpr spi::ReadLimits kAll{1000, std::size_t{1} << 20};

template <typename T>
T value_of(Result<T> result) {
    if (!result.ok()) throw std::runtime_error(describe(result.error()));
    return std::move(result).value();
}

inline void require(const Status& status) {
    if (!status.ok()) throw std::runtime_error(describe(status.error()));
}

// A relay's view of one outbox table: what a process holds, from its start to its end.
class Relay {
  public:
    explicit Relay(const postgres::PostgresSourceConfig& config,
                   const std::vector<spi::RouteName>& routes = {{"default", {}}})
        : source_(value_of(postgres::make_postgres_source(config))),
          lease_(value_of(source_->open_lease())) {
        batch_.epoch = value_of(lease_->acquire("test", std::chrono::hours(1))).value();
        source_->begin_term();
        recorder_ = value_of(source_->open_recorder());
        spi::Beginning beginning = value_of(recorder_->begin(batch_.epoch, routes));
        notes_ = std::move(beginning.notes);
        for (const spi::RouteBeginning& one : beginning.routes) producers_.push_back(one.producer);
        settled_ = beginning.routes[0].settled;
        reader_ =
            value_of(source_->open_reader("default", std::move(beginning.routes[0].finished)));
    }
    ~Relay() { end(); }

    // Hands over.
    void end() { static_cast<void>(lease_->release(batch_.epoch)); }

    spi::Source& source() { return *source_; }
    spi::Reader& reader() { return *reader_; }
    spi::Recorder& recorder() { return *recorder_; }
    std::uint64_t epoch() const { return batch_.epoch; }

    // The events of one read. They stay valid as long as the relay.
    std::vector<spi::EventView> read(const spi::ReadLimits& limits = kAll) {
        batches_.push_back(std::make_unique<spi::EventBatch>());
        require(reader_->read(limits, *batches_.back()));
        for (const spi::PositionRange& range : batches_.back()->closed) closed_.push_back(range);
        return batches_.back()->events();
    }

    std::vector<std::string> read_ids(const spi::ReadLimits& limits = kAll) {
        std::vector<std::string> ids;
        for (const spi::EventView& event : read(limits)) ids.emplace_back(event.id);
        return ids;
    }

    void publish(const std::vector<spi::Position>& positions) {
        spi::RecordBatch batch = fresh();
        batch.finished.push_back({0, positions});
        require(recorder_->record(batch));
        reader_->forget(positions);
        if (removes()) remove(positions);
    }

    // Of those and of earlier ones: how many are left.
    std::size_t remove(const std::vector<spi::Position>& positions = {}) {
        return value_of(recorder_->remove(batch_.epoch, positions)).left;
    }

    void fail(const spi::EventView& event, std::uint32_t attempts, std::int64_t next_attempt_us,
              const std::string& error = "OB_SINK_TIMEOUT: no answer") {
        spi::RecordBatch batch = fresh();
        batch.failed.push_back({"default", event.position, std::string(event.id),
                                std::string(event.order_key()), attempts, next_attempt_us,
                                "OB_SINK_TIMEOUT", error});
        require(recorder_->record(batch));
    }

    void die(const spi::EventView& event, std::uint32_t attempts,
             const std::string& error = "OB_RECORD_REFUSED: too odd") {
        spi::RecordBatch batch = fresh();
        spi::DeadLetter letter;
        letter.route = "default";
        letter.position = event.position;
        letter.attempts = attempts;
        letter.error_code = "OB_RECORD_REFUSED";
        letter.error = error;
        letter.event.add(event);
        batch.dead.push_back(std::move(letter));
        batch.finished.push_back({0, {event.position}});
        require(recorder_->record(batch));
        reader_->forget(batch.finished[0].positions);
        if (removes()) remove(batch.finished[0].positions);
    }

    spi::RecordBatch fresh() const {
        spi::RecordBatch batch;
        batch.epoch = batch_.epoch;
        return batch;
    }

    const std::vector<spi::PositionRange>& closed() const { return closed_; }
    const std::vector<std::string>& notes() const { return notes_; }
    // As destinations are told, in the order of the routes.
    const std::vector<std::string>& producers() const { return producers_; }

    // Of a table that keeps its rows: all up to `to` is finished, or never comes.
    void settle(spi::Position to) {
        spi::SavedStats stats;
        stats.route = "default";
        stats.settled = to;
        stats.settled_before = std::exchange(settled_, to);
        require(recorder_->save_stats(batch_.epoch, {&stats, 1}));
    }

  private:
    bool removes() const { return source_->stable_positions() && !source_->keeps_rows(); }

    std::unique_ptr<spi::Source> source_;
    std::unique_ptr<spi::LeaseStore> lease_;
    std::unique_ptr<spi::Recorder> recorder_;
    std::unique_ptr<spi::Reader> reader_;
    std::vector<std::string> notes_;
    std::vector<std::string> producers_;
    spi::Position settled_ = 0;
    spi::RecordBatch batch_;
    std::vector<std::unique_ptr<spi::EventBatch>> batches_;
    std::vector<spi::PositionRange> closed_;
};

// What `check` says, in one text.
inline std::string findings(spi::Source& source, bool only_problems = false) {
    std::string text;
    for (const spi::Finding& finding : value_of(source.check())) {
        if (!only_problems || finding.grade == spi::Finding::Grade::kFail)
            text += finding.text + "\n";
    }
    return text;
}

}  // namespace outbox::test
