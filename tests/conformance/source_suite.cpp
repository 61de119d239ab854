#include "tests/conformance/source_suite.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "tests/support/counted.h"
#include "tests/support/eventually.h"

namespace outbox::test {

using namespace std::chrono_literals;

constexpr spi::ReadLimits kAll{1000, std::size_t{1} << 20};

std::string suite_id(int number) {
    char text[40];
    std::snprintf(text, sizeof text, "018f2d3c-0000-7000-8000-%012d", number);
    return text;
}

SuiteEvent suite_event(int number, const std::string& key) {
    SuiteEvent event;
    event.id = suite_id(number);
    event.key = key;
    event.payload = "{\"n\": " + std::to_string(number) + "}";
    return event;
}

namespace {

std::vector<std::string> ids(std::initializer_list<int> numbers) {
    std::vector<std::string> out;
    for (const int number : numbers) out.push_back(suite_id(number));
    return out;
}

template <typename T>
T value_of(Result<T> result) {
    if (!result.ok()) throw std::runtime_error(describe(result.error()));
    return std::move(result).value();
}

void require(const Status& status) {
    if (!status.ok()) throw std::runtime_error(describe(status.error()));
}

bool covers(const std::vector<spi::PositionRange>& ranges, spi::Position position) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const spi::PositionRange& range) {
        return range.first <= position && position <= range.last;
    });
}

}  // namespace

void SourceSuite::SetUp() {
    fixture_ = GetParam()();
    if (!fixture_) GTEST_SKIP() << "this server does not have it";
    source_ = fixture_->open();
}

void SourceSuite::commit(const std::vector<SuiteEvent>& events) {
    const auto transaction = fixture_->begin();
    for (const SuiteEvent& event : events) transaction->emit(event);
    transaction->commit();
}

std::vector<std::string> SourceSuite::read_once(spi::Reader& reader) {
    spi::EventBatch batch;
    require(reader.read(kAll, batch));
    std::vector<std::string> read;
    for (const spi::EventView& event : batch.events()) {
        read.emplace_back(event.id);
        positions_.push_back(event.position);
    }
    closed_.insert(closed_.end(), batch.closed.begin(), batch.closed.end());
    return read;
}

std::vector<std::string> SourceSuite::read_ids(spi::Reader& reader, std::size_t count) {
    std::vector<std::string> read;
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (read.size() < count && std::chrono::steady_clock::now() < deadline) {
        for (std::string& id : read_once(reader)) read.push_back(std::move(id));
    }
    return read;
}

std::unique_ptr<spi::Reader> SourceSuite::reader() {
    auto reader = value_of(source_->open_reader("default", {}));
    if (fixture_->unfinished_rows() == 0) fixture_->settle(*reader);
    return reader;
}

std::unique_ptr<spi::Recorder> SourceSuite::recorder() {
    return value_of(source_->open_recorder());
}

std::unique_ptr<spi::LeaseStore> SourceSuite::lease_store() {
    return value_of(source_->open_lease());
}

std::uint64_t SourceSuite::own_lease() {
    held_lease_ = lease_store();
    return value_of(held_lease_->acquire("suite", 60s)).value();
}

spi::Beginning SourceSuite::begin(spi::Recorder& recorder, std::uint64_t epoch,
                                  const std::vector<std::string>& routes) {
    source_->begin_term();
    std::vector<spi::RouteName> names;
    for (const std::string& route : routes) names.push_back({route, {}});
    return value_of(recorder.begin(epoch, names));
}

// As the only route's relay does: recorded, then removed where rows do not stay.
void SourceSuite::finish(spi::Recorder& recorder, std::uint64_t epoch,
                         const std::vector<spi::Position>& positions) {
    spi::RecordBatch batch;
    batch.epoch = epoch;
    batch.finished.push_back({0, positions});
    require(recorder.record(batch));
    if (removes()) value_of(recorder.remove(epoch, positions));
}

TEST_P(SourceSuite, ReadsCommittedEventsInTheOrderTheyWereWritten) {
    commit({suite_event(1), suite_event(2)});
    commit({suite_event(3)});
    const auto reader = this->reader();
    EXPECT_EQ(read_ids(*reader, 3), ids({1, 2, 3}));
    EXPECT_TRUE(std::is_sorted(positions_.begin(), positions_.end()));
}

TEST_P(SourceSuite, GivesEveryFieldAsItWasWritten) {
    SuiteEvent event = suite_event(1, "customer-7");
    event.headers = "{\"traceparent\": \"00-ab\"}";
    event.topic = "payments";
    event.aggregate_type = "Zahlung \xC3\xA4";
    commit({event});
    const auto reader = this->reader();
    spi::EventBatch batch;
    require(reader->read(kAll, batch));
    ASSERT_EQ(batch.size(), 1U);
    const spi::EventView& read = batch.events()[0];
    EXPECT_EQ(read.id, event.id);
    EXPECT_EQ(read.order_key(), "customer-7");
    EXPECT_EQ(read.payload, "{\"n\": 1}");
    EXPECT_EQ(read.headers, event.headers);
    EXPECT_EQ(read.topic, "payments");
    EXPECT_EQ(read.aggregate_type, event.aggregate_type);
    EXPECT_GT(read.position, 0);
    EXPECT_EQ(read.attempts, 0U);
    EXPECT_EQ(read.next_attempt_us, 0);
    const auto now_us = std::chrono::duration_cast<std::chrono::microseconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
    EXPECT_GT(read.occurred_at_us, now_us - 600'000'000);
    EXPECT_LT(read.occurred_at_us, now_us + 600'000'000);
}

TEST_P(SourceSuite, TellsNullFromEmpty) {
    SuiteEvent null = suite_event(1);
    null.key.reset();
    null.payload.reset();
    SuiteEvent empty = suite_event(2, "");
    empty.payload = "\"\"";
    commit({null, empty});
    const auto reader = this->reader();
    spi::EventBatch batch;
    require(reader->read(kAll, batch));
    ASSERT_EQ(batch.size(), 2U);
    EXPECT_EQ(batch.events()[0].payload.data(), nullptr);
    EXPECT_EQ(batch.events()[0].key.data(), nullptr);
    EXPECT_EQ(batch.events()[0].headers.data(), nullptr);
    EXPECT_EQ(batch.events()[1].payload, "\"\"");
    ASSERT_NE(batch.events()[1].key.data(), nullptr);
    EXPECT_EQ(batch.events()[1].key, "");
}

TEST_P(SourceSuite, ReturnsEachEventOnceToEachReader) {
    commit({suite_event(1)});
    const auto first = reader();
    const auto second = reader();
    EXPECT_EQ(read_ids(*first, 1), ids({1}));
    EXPECT_TRUE(read_once(*first).empty());
    EXPECT_EQ(read_ids(*second, 1), ids({1}));
    commit({suite_event(2)});
    EXPECT_EQ(read_ids(*first, 1), ids({2}));
    EXPECT_EQ(read_ids(*second, 1), ids({2}));
}

TEST_P(SourceSuite, ARouteThatLagsReadsAKeyInItsOrder) {
    commit({suite_event(1), suite_event(2), suite_event(3), suite_event(4)});
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    spi::Beginning routes = begin(*recorder, epoch, {"ahead", "behind"});
    const auto ahead =
        value_of(source_->open_reader("ahead", std::move(routes.routes[0].finished)));
    ASSERT_EQ(read_ids(*ahead, 4), ids({1, 2, 3, 4}));
    spi::RecordBatch batch;
    batch.epoch = epoch;
    batch.finished.push_back({0, {positions_[0], positions_[1]}});
    require(recorder->record(batch));
    ahead->forget(batch.finished[0].positions);
    const auto behind =
        value_of(source_->open_reader("behind", std::move(routes.routes[1].finished)));
    EXPECT_EQ(read_ids(*behind, 4), ids({1, 2, 3, 4}));
}

TEST_P(SourceSuite, NeverReadsWhatWasRolledBack) {
    const auto reader = this->reader();
    {
        const auto transaction = fixture_->begin();
        transaction->emit(suite_event(1));
        transaction->rollback();
    }
    commit({suite_event(2)});
    EXPECT_EQ(read_ids(*reader, 1), ids({2}));
    EXPECT_TRUE(read_once(*reader).empty());
}

TEST_P(SourceSuite, NeverReadsWhatASavepointTookBack) {
    if (!fixture_->traits().savepoints) GTEST_SKIP() << "no savepoints";
    const auto reader = this->reader();
    const auto transaction = fixture_->begin();
    transaction->emit(suite_event(1));
    transaction->savepoint();
    transaction->emit(suite_event(2));
    transaction->rollback_to_savepoint();
    transaction->emit(suite_event(3));
    transaction->commit();
    EXPECT_EQ(read_ids(*reader, 2), ids({1, 3}));
    EXPECT_TRUE(read_once(*reader).empty());
}

TEST_P(SourceSuite, ReadsAnEventThatCommitsAfterALaterOneWasRead) {
    if (!fixture_->traits().concurrent_writers) GTEST_SKIP() << "one writer at a time";
    const auto reader = this->reader();
    const auto late = fixture_->begin();
    late->emit(suite_event(1, "a"));
    commit({suite_event(2, "b")});
    EXPECT_EQ(read_ids(*reader, 1), ids({2}));
    late->commit();
    EXPECT_EQ(read_ids(*reader, 1), ids({1}));
    EXPECT_TRUE(read_once(*reader).empty());
}

TEST_P(SourceSuite, ReadsALateEventBeforeItsSuccessorOfTheSameKey) {
    if (!fixture_->traits().concurrent_writers) GTEST_SKIP() << "one writer at a time";
    const auto reader = this->reader();
    const auto late = fixture_->begin();
    late->emit(suite_event(1, "a"));
    commit({suite_event(2, "b")});
    EXPECT_EQ(read_ids(*reader, 1), ids({2}));
    late->commit();
    commit({suite_event(3, "a")});
    EXPECT_EQ(read_ids(*reader, 2), ids({1, 3}));
}

TEST_P(SourceSuite, ClosesTheHoleOfARolledBackEvent) {
    if (!fixture_->traits().concurrent_writers || !source_->stable_positions())
        GTEST_SKIP() << "one writer at a time, or no lasting positions";
    const auto reader = this->reader();
    commit({suite_event(1)});
    {
        const auto transaction = fixture_->begin();
        transaction->emit(suite_event(2));
        transaction->rollback();
    }
    commit({suite_event(3)});
    EXPECT_EQ(read_ids(*reader, 2), ids({1, 3}));
    const spi::Position hole = positions_.back() - 1;
    ASSERT_GT(hole, positions_.front());
    EXPECT_TRUE(eventually(60s, "the hole is closed", [&] {
        EXPECT_TRUE(read_once(*reader).empty());
        return covers(closed_, hole);
    }));
}

TEST_P(SourceSuite, ClosesNoHoleThatAnEventMayStillFill) {
    if (!fixture_->traits().concurrent_writers || !source_->stable_positions())
        GTEST_SKIP() << "one writer at a time, or no lasting positions";
    const auto reader = this->reader();
    commit({suite_event(1)});
    const auto open = fixture_->begin();
    open->emit(suite_event(2));
    {
        const auto transaction = fixture_->begin();
        transaction->emit(suite_event(3));
        transaction->rollback();
    }
    commit({suite_event(4)});
    EXPECT_EQ(read_ids(*reader, 2), ids({1, 4}));
    const spi::Position hole = positions_.front() + 1;
    // Time enough for several looks at the writers.
    const auto until = std::chrono::steady_clock::now() + 150ms;
    while (std::chrono::steady_clock::now() < until) {
        ASSERT_TRUE(read_once(*reader).empty());
        ASSERT_FALSE(covers(closed_, hole));
    }
    open->commit();
    EXPECT_EQ(read_ids(*reader, 1), ids({2}));
    EXPECT_EQ(positions_.back(), hole);
}

TEST_P(SourceSuite, StopsAtTheLimitsAndGoesOnBehindThem) {
    std::vector<SuiteEvent> events;
    for (int n = 1; n <= 20; ++n) {
        events.push_back(suite_event(n));
        events.back().payload = "\"" + std::string(1000, 'x') + "\"";
    }
    commit(events);
    const auto reader = this->reader();
    spi::EventBatch batch;
    require(reader->read({7, std::size_t{1} << 20}, batch));
    EXPECT_EQ(batch.size(), 7U);
    batch.clear();
    require(reader->read({100, 2500}, batch));
    EXPECT_EQ(batch.size(), 3U);
    batch.clear();
    require(reader->read({100, 1}, batch));
    EXPECT_EQ(batch.size(), 1U);
    EXPECT_EQ(batch.events()[0].id, suite_id(11));
    EXPECT_EQ(read_ids(*reader, 9).size(), 9U);
}

TEST_P(SourceSuite, FetchesByPositionWhatIsStillThere) {
    commit({suite_event(1), suite_event(2), suite_event(3)});
    const auto reader = this->reader();
    ASSERT_EQ(read_ids(*reader, 3).size(), 3U);
    const std::vector<spi::Position> all = positions_;
    const auto recorder = this->recorder();
    const std::uint64_t epoch = own_lease();
    begin(*recorder, epoch);
    finish(*recorder, epoch, {all[1]});
    spi::EventBatch batch;
    require(reader->fetch(all, batch));
    if (source_->keeps_rows()) {
        EXPECT_EQ(batch.size(), 3U);
        return;
    }
    ASSERT_EQ(batch.size(), 2U);
    EXPECT_EQ(batch.events()[0].position, all[0]);
    EXPECT_EQ(batch.events()[0].id, suite_id(1));
    EXPECT_EQ(batch.events()[1].position, all[2]);
    EXPECT_EQ(batch.events()[1].payload, "{\"n\": 3}");
}

TEST_P(SourceSuite, FinishesAndRemovesOnceOrAgain) {
    commit({suite_event(1), suite_event(2)});
    const auto reader = this->reader();
    ASSERT_EQ(read_ids(*reader, 2).size(), 2U);
    const auto recorder = this->recorder();
    const std::uint64_t epoch = own_lease();
    begin(*recorder, epoch);
    finish(*recorder, epoch, {positions_[0]});
    EXPECT_EQ(fixture_->unfinished_rows(), 1);
    finish(*recorder, epoch, {positions_[0]});
    EXPECT_EQ(fixture_->unfinished_rows(), 1);
}

TEST_P(SourceSuite, RefusesEverythingOfAnOwnerOfThePast) {
    commit({suite_event(1)});
    const auto reader = this->reader();
    spi::EventBatch events;
    require(reader->read(kAll, events));
    ASSERT_EQ(events.size(), 1U);
    const spi::Position position = events.events()[0].position;
    const auto recorder = this->recorder();
    const std::uint64_t epoch = own_lease();
    begin(*recorder, epoch);

    std::vector<spi::RecordBatch> batches(4);
    batches[0].finished.push_back({0, {position}});
    batches[1].failed.push_back({"default", position, suite_id(1), "k", 1, 1, "OB_X", "no"});
    batches[2].destinations.emplace_back(0, "elsewhere");
    spi::DeadLetter letter;
    letter.route = "default";
    letter.position = position;
    letter.error_code = "OB_X";
    letter.event.add(events.events()[0]);
    batches[3].dead.push_back(std::move(letter));
    for (spi::RecordBatch& batch : batches) {
        batch.epoch = epoch - 1;
        const Status status = recorder->record(batch);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kLeaseLost);
    }
    EXPECT_EQ(recorder->save_stats(epoch - 1, std::vector<spi::SavedStats>(1)).error().code,
              ErrorCode::kLeaseLost);
    if (removes()) {
        EXPECT_EQ(recorder->remove(epoch - 1, std::vector<spi::Position>{position}).error().code,
                  ErrorCode::kLeaseLost);
    }
    const std::vector<spi::RouteName> routes{{"default", {}}};
    EXPECT_EQ(recorder->begin(epoch - 1, routes).error().code, ErrorCode::kLeaseLost);
    EXPECT_EQ(fixture_->unfinished_rows(), 1);
    EXPECT_TRUE(value_of(recorder->load_deliveries("default")).empty());
    const spi::Beginning now = begin(*recorder, epoch);
    EXPECT_TRUE(now.routes[0].finished.empty());
    EXPECT_EQ(now.routes[0].destination, "");
    EXPECT_EQ(value_of(recorder->stats()).dead, 0);
}

TEST_P(SourceSuite, RemembersFailingEventsUntilTheyArePublished) {
    commit({suite_event(1), suite_event(2)});
    const auto reader = this->reader();
    ASSERT_EQ(read_ids(*reader, 2).size(), 2U);
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    begin(*recorder, epoch);
    spi::RecordBatch batch;
    batch.epoch = epoch;
    batch.failed.push_back({"default", positions_[0], suite_id(1), "k", 1, 111, "OB_A", "first"});
    batch.failed.push_back({"default", positions_[0], suite_id(1), "k", 2, 1'700'000'000'000'123,
                            "OB_B", "broken \xff text"});
    require(recorder->record(batch));
    {
        const auto fresh = this->recorder();
        const auto deliveries = value_of(fresh->load_deliveries("default"));
        ASSERT_EQ(deliveries.size(), 1U);
        EXPECT_EQ(deliveries[0].event_id, suite_id(1));
        EXPECT_EQ(deliveries[0].attempts, 2U);
        EXPECT_EQ(deliveries[0].next_attempt_us, 1'700'000'000'000'123);
        EXPECT_EQ(deliveries[0].error_code, "OB_B");
        EXPECT_EQ(deliveries[0].error, "broken ? text");
        EXPECT_EQ(deliveries[0].key, "k");
        EXPECT_TRUE(value_of(fresh->load_deliveries("other")).empty());
        EXPECT_EQ(value_of(fresh->stats()).failing, 1);
        begin(*fresh, epoch);
        finish(*fresh, epoch, positions_);
        EXPECT_TRUE(value_of(fresh->load_deliveries("default")).empty());
    }
    EXPECT_EQ(fixture_->unfinished_rows(), 0);
}

// While nobody relays, who gives an event up deletes its row.
TEST_P(SourceSuite, ForgetsTheAttemptsOfEventsThatWereDeleted) {
    commit({suite_event(1)});
    const auto reader = this->reader();
    ASSERT_EQ(read_ids(*reader, 1).size(), 1U);
    const std::uint64_t epoch = own_lease();
    spi::RecordBatch batch;
    batch.epoch = epoch;
    batch.failed.push_back({"default", positions_[0], suite_id(1), "k", 1, 111, "OB_A", "there"});
    batch.failed.push_back(
        {"default", positions_[0] + 1'000, suite_id(2), "k", 1, 111, "OB_A", "deleted"});
    {
        const auto recorder = this->recorder();
        begin(*recorder, epoch);
        require(recorder->record(batch));
    }
    const auto recorder = this->recorder();
    begin(*recorder, epoch);
    EXPECT_EQ(value_of(recorder->stats()).failing, 2);
    value_of(recorder->tidy(epoch));
    const auto deliveries = value_of(recorder->load_deliveries("default"));
    ASSERT_EQ(deliveries.size(), 1U);
    EXPECT_EQ(deliveries[0].event_id, suite_id(1));
    EXPECT_EQ(value_of(recorder->stats()).failing, 1);
}

TEST_P(SourceSuite, KeepsTheLedgerOfEachRoute) {
    if (!source_->stable_positions()) GTEST_SKIP() << "no lasting positions";
    commit({suite_event(1), suite_event(2), suite_event(3), suite_event(4)});
    const auto reader = this->reader();
    ASSERT_EQ(read_ids(*reader, 4).size(), 4U);
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    begin(*recorder, epoch, {"a", "b"});
    spi::RecordBatch batch;
    batch.epoch = epoch;
    batch.finished.push_back({0, {positions_[0], positions_[1], positions_[3]}});
    batch.finished.push_back({1, {positions_[1]}});
    require(recorder->record(batch));
    batch.finished = {{0, {positions_[0]}}, {1, {positions_[2]}}};  // some of it again
    batch.destinations.emplace_back(1, "there");
    require(recorder->record(batch));
    const spi::Beginning next = begin(*recorder, epoch, {"a", "b"});
    EXPECT_EQ(next.routes[0].finished.positions(),
              (std::vector<spi::Position>{positions_[0], positions_[1], positions_[3]}));
    EXPECT_EQ(next.routes[1].finished.positions(),
              (std::vector<spi::Position>{positions_[1], positions_[2]}));
    EXPECT_EQ(next.routes[0].destination, "");
    EXPECT_EQ(next.routes[1].destination, "there");
    const std::vector<std::string> names{"b", "a"};
    EXPECT_EQ(value_of(this->recorder()->destinations(names)),
              (std::vector<std::string>{"there", ""}));

    // A reader passes over what its route has finished.
    const auto again = value_of(source_->open_reader("a", next.routes[0].finished));
    EXPECT_EQ(read_ids(*again, 1), ids({3}));
    EXPECT_TRUE(read_once(*again).empty());
}

TEST_P(SourceSuite, WhatIsRemovedLeavesTheLedgersOfAllRoutes) {
    if (!source_->stable_positions()) GTEST_SKIP() << "no lasting positions";
    if (!removes()) GTEST_SKIP() << "rows stay";
    commit({suite_event(1), suite_event(2), suite_event(3)});
    const auto reader = this->reader();
    ASSERT_EQ(read_ids(*reader, 3).size(), 3U);
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    begin(*recorder, epoch, {"a", "b"});
    spi::RecordBatch batch;
    batch.epoch = epoch;
    batch.finished.push_back({0, {positions_[0], positions_[1]}});
    batch.finished.push_back({1, {positions_[1], positions_[2]}});
    require(recorder->record(batch));
    const spi::Removed removed =
        value_of(recorder->remove(epoch, std::vector<spi::Position>{positions_[1]}));
    EXPECT_EQ(removed.positions, std::vector<spi::Position>{positions_[1]});
    EXPECT_EQ(removed.left, 0U);
    EXPECT_EQ(fixture_->unfinished_rows(), 2);
    const spi::Beginning next = begin(*recorder, epoch, {"a", "b"});
    EXPECT_EQ(next.routes[0].finished.positions(), std::vector<spi::Position>{positions_[0]});
    EXPECT_EQ(next.routes[1].finished.positions(), std::vector<spi::Position>{positions_[2]});
}

TEST_P(SourceSuite, ANewRouteBeginsWithWhatNotEveryKnownOneHasFinished) {
    if (!source_->stable_positions()) GTEST_SKIP() << "no lasting positions";
    commit({suite_event(1), suite_event(2), suite_event(3)});
    const auto reader = this->reader();
    ASSERT_EQ(read_ids(*reader, 3).size(), 3U);
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    begin(*recorder, epoch, {"a", "b"});
    spi::RecordBatch batch;
    batch.epoch = epoch;
    batch.finished.push_back({0, {positions_[0], positions_[1]}});
    batch.finished.push_back({1, {positions_[0], positions_[2]}});
    require(recorder->record(batch));
    const spi::Beginning next = begin(*recorder, epoch, {"a", "c", "b"});
    EXPECT_EQ(next.routes[1].finished.positions(), std::vector<spi::Position>{positions_[0]});
    EXPECT_TRUE(next.notes.empty());
}

TEST_P(SourceSuite, WhatARoutePassedOverIsUnfinishedUnderAnotherFilter) {
    commit({suite_event(1, "a"), suite_event(2, "b"), suite_event(3, "c")});
    const auto reader = this->reader();
    ASSERT_EQ(read_ids(*reader, 3).size(), 3U);
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    using Routes = std::vector<spi::RouteName>;
    const auto unfinished = [&](const Routes& routes, std::size_t route) {
        spi::Beginning next = value_of(recorder->begin(epoch, routes));
        const auto reads = value_of(
            source_->open_reader(routes[route].name, std::move(next.routes[route].finished)));
        std::vector<std::string> ids = read_once(*reads);
        std::sort(ids.begin(), ids.end());
        return ids;
    };
    using Ids = std::vector<std::string>;
    const Routes before{{"first", {}, "1"}, {"second", {}, "2"}, {"away", {}, "3"}};
    static_cast<void>(value_of(recorder->begin(epoch, before)));
    spi::RecordBatch batch;
    batch.epoch = epoch;
    batch.finished.push_back({0, positions_, {positions_[1], positions_[2]}});
    batch.finished.push_back({1, positions_, {positions_[0], positions_[2]}});
    require(recorder->record(batch));
    EXPECT_EQ(unfinished(before, 0), Ids{});
    EXPECT_EQ(unfinished(before, 1), Ids{});

    // The second took one of those that the first passed over, and nobody the other one.
    Routes changed = before;
    changed[2].filter = "4";
    EXPECT_EQ(unfinished(changed, 0), Ids{suite_id(3)}) << "who answers for it is asked again";
    EXPECT_EQ(unfinished(changed, 1), Ids{});
    batch.finished = {{0, {positions_[2]}, {positions_[2]}}};
    require(recorder->record(batch));
    EXPECT_EQ(unfinished(changed, 0), Ids{});

    std::swap(changed[0], changed[1]);
    EXPECT_EQ(unfinished(changed, 0), Ids{suite_id(3)}) << "another is first";
    EXPECT_EQ(unfinished(changed, 1), Ids{});

    changed[1].filter = "5";
    EXPECT_EQ(unfinished(changed, 1), (Ids{suite_id(2), suite_id(3)})) << "it may want them now";
    EXPECT_EQ(unfinished(changed, 1), (Ids{suite_id(2), suite_id(3)})) << "and still does";
}

TEST_P(SourceSuite, WhatARouteTookIsNotAskedForAgainWhenItGoes) {
    commit({suite_event(1), suite_event(2)});
    const auto reader = this->reader();
    ASSERT_EQ(read_ids(*reader, 2).size(), 2U);
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    const std::vector<spi::RouteName> all{{"goes", {}, "1"}, {"stays", {}, "2"}, {"away", {}, "3"}};
    static_cast<void>(value_of(recorder->begin(epoch, all)));
    spi::RecordBatch batch;
    batch.epoch = epoch;
    batch.finished.push_back({0, positions_, {positions_[1]}});
    batch.finished.push_back({1, positions_, {positions_[0]}});
    require(recorder->record(batch));
    const std::vector<spi::RouteName> left{all[1], all[2]};
    spi::Beginning next = value_of(recorder->begin(epoch, left));
    const auto reads = value_of(source_->open_reader("stays", std::move(next.routes[0].finished)));
    EXPECT_TRUE(read_once(*reads).empty());
}

TEST_P(SourceSuite, ARouteThatIsGoneIsNotForgottenWhileItHasEventsLeft) {
    commit({suite_event(1), suite_event(2)});
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    begin(*recorder, epoch, {"default", "gone"});
    const auto reader = this->reader();
    ASSERT_EQ(read_ids(*reader, 2).size(), 2U);
    spi::RecordBatch batch;
    batch.epoch = epoch;
    batch.finished.push_back({0, positions_});
    batch.finished.push_back({1, {positions_[0]}});
    require(recorder->record(batch));
    const std::vector<spi::RouteName> one{{"default", {}}};
    const auto refused = recorder->begin(epoch, one);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kRouteGone);
    EXPECT_EQ(refused.error().advice, Advice::kStop);
    EXPECT_NE(refused.error().message.find("outbox routes retire 'gone'"), std::string::npos);
    // Of another relay, which has the lease by now, they are none of ours.
    EXPECT_EQ(recorder->begin(epoch - 1, one).error().code, ErrorCode::kLeaseLost);
    begin(*recorder, epoch, {"default", "gone"});
    batch.finished = {{1, {positions_[1]}}};
    require(recorder->record(batch));
    const spi::Beginning next = begin(*recorder, epoch, {"default"});
    ASSERT_EQ(next.notes.size(), 1U);
    EXPECT_NE(next.notes[0].find("'gone'"), std::string::npos);
}

TEST_P(SourceSuite, ARouteOfAnEarlierVersionKeepsWhatItHad) {
    commit({suite_event(1)});
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    begin(*recorder, epoch, {"default"});
    const auto reader = this->reader();
    ASSERT_EQ(read_ids(*reader, 1).size(), 1U);
    spi::RecordBatch batch;
    batch.epoch = epoch;
    batch.failed.push_back({"default", positions_[0], suite_id(1), "k", 3, 111, "OB_X", "no"});
    require(recorder->record(batch));
    const std::vector<spi::RouteName> named{{"kafka", {"default"}}};
    const spi::Beginning next = value_of(recorder->begin(epoch, named));
    ASSERT_EQ(next.notes.size(), 1U);
    const auto deliveries = value_of(recorder->load_deliveries("kafka"));
    ASSERT_EQ(deliveries.size(), 1U);
    EXPECT_EQ(deliveries[0].attempts, 3U);
}

TEST_P(SourceSuite, KeepsDeadLettersWholeAndDeliversThemAgainOnRequest) {
    SuiteEvent event = suite_event(1, "customer-7");
    event.headers = "{\"a\": \"b\"}";
    event.topic = "payments";
    commit({event});
    const auto reader = this->reader();
    spi::EventBatch events;
    require(reader->read(kAll, events));
    ASSERT_EQ(events.size(), 1U);
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    begin(*recorder, epoch);
    const auto die = [&](std::uint32_t attempts) {
        spi::RecordBatch batch;
        batch.epoch = epoch;
        spi::DeadLetter letter;
        letter.route = "default";
        letter.position = events.events()[0].position;
        letter.attempts = attempts;
        letter.error_code = "OB_RECORD_REFUSED";
        letter.error = "refused";
        letter.event.add(events.events()[0]);
        batch.dead.push_back(std::move(letter));
        batch.finished.push_back({0, {events.events()[0].position}});
        require(recorder->record(batch));
        if (removes()) {
            value_of(recorder->remove(epoch, batch.finished[0].positions));
        }
    };
    die(5);
    die(6);  // the same event again replaces the first letter
    EXPECT_EQ(fixture_->unfinished_rows(), 0);
    EXPECT_EQ(value_of(recorder->stats()).dead, 1);
    EXPECT_EQ(
        value_of(recorder->load_dead_keys("default")),
        (std::vector<spi::DeadKey>{{std::string(events.events()[0].tenant_id), "customer-7"}}));
    EXPECT_TRUE(value_of(recorder->load_redeliveries("default", 0, 10)).empty());

    fixture_->request_retry(1);
    auto letters = value_of(recorder->load_redeliveries("default", 0, 10));
    ASSERT_EQ(letters.size(), 1U);
    EXPECT_TRUE(value_of(recorder->load_redeliveries("default", letters[0].dead_id, 10)).empty());
    EXPECT_EQ(letters[0].attempts, 6U);
    EXPECT_EQ(letters[0].error, "refused");
    ASSERT_EQ(letters[0].event.size(), 1U);
    const spi::EventView& kept = letters[0].event.events()[0];
    EXPECT_EQ(kept.id, suite_id(1));
    EXPECT_EQ(kept.order_key(), "customer-7");
    EXPECT_EQ(kept.payload, "{\"n\": 1}");
    EXPECT_EQ(kept.headers, "{\"a\": \"b\"}");
    EXPECT_EQ(kept.topic, "payments");
    EXPECT_EQ(kept.schema_id.data(), nullptr);
    EXPECT_EQ(kept.occurred_at_us, events.events()[0].occurred_at_us);

    spi::RecordBatch again;
    again.epoch = epoch;
    again.failed_again.push_back(
        {"default", letters[0].dead_id, suite_id(1), {}, 7, 0, "OB_SINK_TIMEOUT", "late"});
    require(recorder->record(again));
    EXPECT_TRUE(value_of(recorder->load_redeliveries("default", 0, 10)).empty());
    EXPECT_EQ(value_of(recorder->stats()).dead, 1);

    fixture_->request_retry(letters[0].dead_id);
    letters = value_of(recorder->load_redeliveries("default", 0, 10));
    ASSERT_EQ(letters.size(), 1U);
    EXPECT_EQ(letters[0].attempts, 7U);
    EXPECT_EQ(letters[0].error_code, "OB_SINK_TIMEOUT");
    spi::RecordBatch done;
    done.epoch = epoch;
    done.redelivered = {letters[0].dead_id};
    require(recorder->record(done));
    EXPECT_EQ(value_of(recorder->stats()).dead, 0);
}

// Fewer than were asked for need not be the last ones: a look that finds none is behind them.
TEST_P(SourceSuite, LoadsLargeDeadLettersThatAreRetriedInPartsAndLeavesNoneOut) {
    constexpr std::size_t kLetters = 12;
    constexpr std::size_t kSize = 1'000'000;
    std::vector<SuiteEvent> written;
    for (std::size_t i = 1; i <= kLetters; ++i) {
        written.push_back(suite_event(static_cast<int>(i)));
        written.back().payload = "\"" + std::string(kSize, 'x') + "\"";
    }
    commit(written);
    const auto reader = this->reader();
    spi::EventBatch events;
    require(reader->read({kLetters, 2 * kLetters * kSize}, events));
    ASSERT_EQ(events.size(), kLetters);
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    begin(*recorder, epoch);
    spi::RecordBatch batch;
    batch.epoch = epoch;
    batch.finished.push_back({0, {}});
    for (const spi::EventView& event : events.events()) {
        spi::DeadLetter& letter = batch.dead.emplace_back();
        letter.route = "default";
        letter.position = event.position;
        letter.error_code = "OB_RECORD_REFUSED";
        letter.event.add(event);
        batch.finished[0].positions.push_back(event.position);
    }
    require(recorder->record(batch));
    for (std::size_t i = 1; i <= kLetters; ++i) {
        fixture_->request_retry(static_cast<std::int64_t>(i));
    }
    std::vector<std::size_t> parts;
    std::int64_t after = 0;
    while (true) {
        const auto letters = value_of(recorder->load_redeliveries("default", after, 100));
        if (letters.empty()) break;
        EXPECT_EQ(letters.front().dead_id, after + 1);
        after = letters.back().dead_id;
        parts.push_back(letters.size());
    }
    EXPECT_EQ(after, static_cast<std::int64_t>(kLetters));
    EXPECT_EQ(parts.size(), 2U) << "of eight MiB";
}

TEST_P(SourceSuite, MovesDelayedEventsThatAreDueInOrder) {
    if (!fixture_->traits().scheduled) GTEST_SKIP() << "no delayed events";
    fixture_->schedule_due(suite_event(1));
    fixture_->schedule_due(suite_event(2));
    fixture_->schedule_due(suite_event(3));
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    const auto refused = recorder->move_due(epoch - 1, 10);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kLeaseLost);
    EXPECT_EQ(value_of(recorder->stats()).scheduled, 3);
    EXPECT_EQ(value_of(recorder->move_due(epoch, 2)), 2U);
    EXPECT_EQ(value_of(recorder->move_due(epoch, 2)), 1U);
    EXPECT_EQ(value_of(recorder->move_due(epoch, 2)), 0U);
    EXPECT_EQ(value_of(recorder->stats()).scheduled, 0);
    const auto reader = this->reader();
    EXPECT_EQ(read_ids(*reader, 3), ids({1, 2, 3}));
}

TEST_P(SourceSuite, ADelayedEventIsNoOlderThanTheTimeSinceItWasDue) {
    if (!fixture_->traits().scheduled) GTEST_SKIP() << "no delayed events";
    const auto reader = this->reader();
    fixture_->schedule_due(suite_event(1));
    const std::uint64_t epoch = own_lease();
    const auto recorder = this->recorder();
    EXPECT_EQ(value_of(recorder->move_due(epoch, 10)), 1U);
    EXPECT_LT(value_of(recorder->stats()).oldest_age_s, 3600);
    spi::EventBatch batch;
    ASSERT_TRUE(eventually(60s, "the event comes", [&] {
        require(reader->read(kAll, batch));
        return !batch.empty();
    }));
    constexpr std::int64_t kHourUs = 3'600'000'000;
    const spi::EventView& event = batch.events().front();
    EXPECT_GT(event.waits_since_us() - event.occurred_at_us, 23 * kHourUs)
        << "its own time is what the writer gave";
}

TEST_P(SourceSuite, CountsTheBacklog) {
    const auto recorder = this->recorder();
    EXPECT_EQ(counted_backlog(*recorder), 0);
    EXPECT_EQ(value_of(recorder->stats()).oldest_age_s, 0);
    commit({suite_event(1), suite_event(2)});
    EXPECT_TRUE(eventually(60s, "the age grows",
                           [&] { return value_of(recorder->stats()).oldest_age_s > 0; }));
    EXPECT_EQ(counted_backlog(*recorder), 2);
}

TEST_P(SourceSuite, GivesTheLeaseToOneOwnerAtATime) {
    const auto first = lease_store();
    const auto second = lease_store();
    const auto epoch = value_of(first->acquire("first", 60s));
    ASSERT_TRUE(epoch);
    EXPECT_FALSE(value_of(second->acquire("second", 60s)));
    EXPECT_TRUE(value_of(first->renew(*epoch, 60s)));
    require(first->release(*epoch));
    const auto next = value_of(second->acquire("second", 60s));
    ASSERT_TRUE(next);
    EXPECT_GT(*next, *epoch);
    EXPECT_FALSE(value_of(first->renew(*epoch, 60s)));
    require(first->release(*epoch));
    EXPECT_TRUE(value_of(second->renew(*next, 60s)));
}

TEST_P(SourceSuite, GivesTheLeaseOfAGoneOwnerAtOnce) {
    if (!fixture_->traits().owner_seen_gone) GTEST_SKIP() << "an owner that is gone is not seen";
    const auto second = lease_store();
    {
        const auto first = lease_store();
        ASSERT_TRUE(value_of(first->acquire("first", 600s)));
        ASSERT_FALSE(value_of(second->acquire("second", 600s)));
    }
    EXPECT_TRUE(eventually(60s, "the lease is free",
                           [&] { return value_of(second->acquire("second", 600s)).has_value(); }));
}

TEST_P(SourceSuite, GivesTheLeaseThatWasNotRenewedInTime) {
    const auto first = lease_store();
    const auto second = lease_store();
    const auto epoch = value_of(first->acquire("first", 50ms));
    ASSERT_TRUE(epoch);
    EXPECT_TRUE(eventually(60s, "the lease expires",
                           [&] { return value_of(second->acquire("second", 600s)).has_value(); }));
    EXPECT_FALSE(value_of(first->renew(*epoch, 600s)));
}

TEST_P(SourceSuite, FindsNoProblemWhereThereIsNone) {
    for (const spi::Finding& finding : value_of(source_->check())) {
        EXPECT_NE(finding.grade, spi::Finding::Grade::kFail) << finding.text;
    }
}

}  // namespace outbox::test
