#include "tests/webhook/dispatcher_fixture.h"

namespace outbox::test {
namespace {

// Events that an endpoint hangs on, each of a key of its own, beside others that it takes at once.
class HangingEvents : public DispatcherTest {
  protected:
    static constexpr std::int64_t kTimeoutUs = 20 * webhook::kSecondUs;
    static constexpr std::int64_t kStepMs = 100;

    void begin(std::size_t max_per_endpoint) {
        ASSERT_EQ(add_endpoint(url_, "one"), "");
        options_.max_per_endpoint = max_per_endpoint;
        start();
        ASSERT_EQ(rig_->write({{.id = "e0", .key = "k0"}}), "");
        ASSERT_TRUE(rig_->turn_until("it is known to answer", [&] { return left() == 0; }));
        written_.clear();
        begun_us_ = rig_->clock.boot_us();
    }
    void start() {
        rig_ = std::make_unique<Rig>(url_, options_);
        rig_->receivers.answer = [this](const auto&, const auto& delivery) {
            return answer(delivery);
        };
    }
    // Another relay, an hour later.
    void start_anew() {
        const std::int64_t now_us = rig_->clock.boot_us();
        rig_->finish();
        start();
        rig_->clock.advance_us(now_us - rig_->clock.boot_us() + 3'600 * webhook::kSecondUs);
        hangs_since_.clear();
        longest_us_.clear();
        written_.clear();
    }
    // In these seconds, two events a second that the endpoint takes.
    void go_on(int seconds) {
        for (int i = 0; i < seconds * 10; ++i) {
            if (i % 5 == 0) {
                const std::string number = std::to_string(next_++);
                write("e" + number, "k" + std::to_string(next_ % 15));
            }
            turn();
        }
    }
    void poison() {
        const std::string number = std::to_string(next_++);
        write("p" + number, "p" + number);
    }
    void write(const std::string& id, const std::string& key) {
        ASSERT_EQ(rig_->write({{.id = id, .key = key}}), "");
        written_[id] = rig_->clock.boot_us();
    }
    // Attempts end when their time is over.
    void turn() {
        rig_->turn(kStepMs);
        const std::int64_t now_us = rig_->clock.boot_us();
        std::vector<std::uint64_t> over;
        for (const auto& [token, endpoint] : rig_->receivers.hanging) {
            if (now_us - hangs_since_.emplace(token, now_us).first->second >= kTimeoutUs) {
                over.push_back(token);
            }
        }
        for (const std::uint64_t token : over) {
            rig_->receivers.end_hanging(token, ScriptedReceivers::down());
        }
    }
    std::optional<Answer> answer(const webhook::Delivery& delivery) {
        if (all_hang_ || (hangs_ && delivery.event_id.starts_with('p'))) return std::nullopt;
        const std::int64_t now_us = rig_->clock.boot_us();
        const auto written = written_.find(delivery.event_id);
        if (written != written_.end() && delivery.event_id.starts_with('e')) {
            const std::int64_t s = (now_us - begun_us_) / webhook::kSecondUs;
            longest_us_[s / 30] = std::max(longest_us_[s / 30], now_us - written->second);
        }
        return ScriptedReceivers::done();
    }
    // How long one that came from then on, in seconds, waited.
    std::int64_t longest_s(std::int64_t from_s) const {
        std::int64_t most = 0;
        for (const auto& [part, us] : longest_us_) {
            if (part * 30 >= from_s) most = std::max(most, us);
        }
        return most / webhook::kSecondUs;
    }
    std::string waits() const {
        std::string out;
        for (const auto& [part, us] : longest_us_) {
            out += " " + std::to_string(part * 30) + ":" + std::to_string(us / 1000) + "ms";
        }
        return out;
    }
    long long healthy_left() {
        return db_->number(
            "SELECT count(*) FROM outbox_webhook_deliveries WHERE event_id LIKE 'e%'");
    }

    webhook::DispatchOptions options_ = with_a_long_lease();
    std::unique_ptr<Rig> rig_;
    bool hangs_ = true;
    bool all_hang_ = false;
    int next_ = 1;
    std::int64_t begun_us_ = 0;
    std::map<std::string, std::int64_t> written_;
    std::map<std::uint64_t, std::int64_t> hangs_since_;
    std::map<std::int64_t, std::int64_t> longest_us_;  // by half minutes
};

TEST_P(HangingEvents, LeavePlacesForThoseOfOtherKeys) {
    begin(webhook::DispatchOptions().max_per_endpoint);
    for (int i = 0; i < 8; ++i) {
        poison();
        go_on(5);
    }
    for (int i = 0; i < 30; ++i) {  // and one more each ten seconds
        poison();
        go_on(10);
    }
    EXPECT_LE(longest_s(0), 1) << waits();
    EXPECT_LE(healthy_left(), 15);
    // Each is blamed, and can be seen to be.
    EXPECT_GT(db_->number("SELECT max(attempts) FROM outbox_webhook_deliveries"), 2);
    EXPECT_GE(db_->number("SELECT count(*) FROM outbox_webhook_deliveries WHERE attempts > 0 AND "
                          "last_error = 'as scripted'"),
              10);
    EXPECT_EQ(state("one"), "enabled");
    hangs_ = false;
    ASSERT_TRUE(rig_->turn_until(
        "all come",
        [&] {
            turn();
            return left() == 0;
        },
        10'000));
    EXPECT_TRUE(in_order(rig_->receivers, "one"));
}

TEST_P(HangingEvents, ThatBeginTogetherDelayThoseOfOtherKeysOnce) {
    begin(webhook::DispatchOptions().max_per_endpoint);
    for (int i = 0; i < 8; ++i) poison();
    for (int i = 0; i < 8; ++i) {
        go_on(5);
        poison();
    }
    go_on(560);
    EXPECT_LE(longest_s(120), 1) << waits();
    EXPECT_LE(healthy_left(), 15);
}

// Where each place hangs that is not known: one after the other is found out.
TEST_P(HangingEvents, LeaveOneOfTwoPlaces) {
    begin(2);
    for (int i = 0; i < 8; ++i) {
        poison();
        go_on(5);
    }
    go_on(560);
    EXPECT_LE(longest_s(120), 1) << waits();
    EXPECT_LE(healthy_left(), 15);
}

TEST_P(HangingEvents, LeaveASinglePlaceForMostOfTheTime) {
    begin(1);
    for (int i = 0; i < 8; ++i) {
        poison();
        go_on(5);
    }
    go_on(560);
    EXPECT_LE(longest_s(270), 21) << waits();
}

TEST_P(HangingEvents, ThatWereBlamedAreKnownToTheNextRelay) {
    begin(webhook::DispatchOptions().max_per_endpoint);
    for (int i = 0; i < 20; ++i) {
        poison();
        go_on(10);
    }
    go_on(100);
    ASSERT_GE(db_->number("SELECT count(*) FROM outbox_webhook_deliveries WHERE attempts > 0"), 16);
    start_anew();
    go_on(120);
    EXPECT_LE(longest_s(0), 1) << waits();
    EXPECT_LE(healthy_left(), 15);
}

TEST_P(HangingEvents, AreNotAtFaultWhereAllHang) {
    begin(webhook::DispatchOptions().max_per_endpoint);
    go_on(5);
    all_hang_ = true;
    go_on(30 * 60);
    EXPECT_EQ(db_->number("SELECT coalesce(max(attempts), 0) FROM outbox_webhook_deliveries"), 0);
    EXPECT_LT(rig_->receivers.attempts("one"), 40U) << "it is asked with back-off";
    all_hang_ = false;
    ASSERT_TRUE(rig_->turn_until(
        "it gets all",
        [&] {
            turn();
            return left() == 0;
        },
        1'000));
    EXPECT_TRUE(in_order(rig_->receivers, "one"));
    EXPECT_EQ(db_->number("SELECT coalesce(max(attempts), 0) FROM outbox_webhook_deliveries"), 0);
}

INSTANTIATE_TEST_SUITE_P(Both, HangingEvents, testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& info) { return backend_name(info.param); });

}  // namespace
}  // namespace outbox::test
