#include "tests/brokers/troubles.h"

#include <chrono>
#include <gtest/gtest.h>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace outbox::test {

const Certificates& broker_certificates() {
    static Certificates made;
    static const bool signed_now = [] {
        made.sign("server", "/CN=localhost", "subjectAltName=DNS:localhost");
        made.make_ca("other");
        return true;
    }();
    static_cast<void>(signed_now);
    return made;
}

spi::Completions outcome_of(spi::Sink& sink, const std::vector<Letter>& letters) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
        EXPECT_TRUE(sink.publish(letters[i].record(i)));
    }
    spi::Completions all;
    const auto known = [&] { return all.acknowledged.size() + all.failed.size(); };
    for (int i = 0; i < 600 && known() < letters.size(); ++i) {
        spi::Completions out;
        sink.poll(std::chrono::milliseconds(100), out);
        all.acknowledged.insert(all.acknowledged.end(), out.acknowledged.begin(),
                                out.acknowledged.end());
        std::move(out.failed.begin(), out.failed.end(), std::back_inserter(all.failed));
    }
    EXPECT_EQ(known(), letters.size());
    return all;
}

spi::FailedRecord failure_of(spi::Sink& sink, const std::string& topic) {
    const auto sent = letters(topic, 1, 1);
    const auto out = outcome_of(sink, sent);
    if (out.failed.size() != 1) throw std::runtime_error("it did not fail");
    return out.failed[0];
}

void deliver_through(spi::Sink& sink, const std::vector<Letter>& sent, std::size_t after,
                     const std::function<void()>& act, const std::function<void()>& undo) {
    Courier courier(sink);
    courier.max_publish_per_poll = 100;
    bool acted = false;
    bool undone = false;
    courier.after_poll = [&](const Courier& now) {
        if (!acted && now.acknowledged() >= after) {
            act();
            acted = true;
        } else if (acted && !undone && now.failures() > 0) {
            undo();
            undone = true;
        }
    };
    const std::string problem = courier.deliver(sent);
    if (acted && !undone) undo();
    ASSERT_EQ(problem, "");
    EXPECT_TRUE(undone);
    EXPECT_TRUE(courier.dead().empty());
    EXPECT_EQ(courier.counted_attempts(), 0U);
}

void expect_once_in_order(const std::vector<Letter>& sent, const std::vector<Arrived>& arrived) {
    EXPECT_EQ(arrived.size(), sent.size()) << "repeats";
    EXPECT_EQ(missing_or_reordered(sent, arrived), "");
}

}  // namespace outbox::test
