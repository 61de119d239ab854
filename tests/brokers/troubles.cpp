#include "tests/brokers/troubles.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/support/eventually.h"
#include "tests/support/files.h"

namespace outbox::test {
namespace {

constexpr std::chrono::seconds kMostWait{120};

std::vector<Letter> deliver_without_failure(spi::Sink& sink, std::vector<Letter> sent) {
    Courier courier(sink);
    courier.max_publish_per_poll = 1;  // so that connections end with one alone under way
    EXPECT_EQ(courier.deliver(sent), "");
    EXPECT_EQ(courier.failures(), 0U) << courier.counted_attempts() << " attempts counted";
    return sent;
}

}  // namespace

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
    const auto end = std::chrono::steady_clock::now() + kMostWait;
    while (known() < letters.size() && std::chrono::steady_clock::now() < end) {
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

std::string notes_of(spi::Sink& sink) {
    spi::SinkReport report;
    sink.report(report);
    std::string text;
    for (const auto& note : report.notes) {
        text += note.what;
        for (const auto& [name, value] : note.fields) text += " " + name + "=" + value;
        text += '\n';
    }
    return text;
}

void deliver_through(spi::Sink& sink, const std::vector<Letter>& sent, std::size_t after,
                     const std::function<void()>& act, const std::function<void()>& undo) {
    Courier courier(sink);
    courier.max_publish_per_poll = 50;
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
    EXPECT_TRUE(courier.dead().empty()) << describe(courier.dead()[0].error);
    EXPECT_EQ(courier.counted_attempts(), 0U);
}

std::vector<Letter> letters_to_two(const std::string& topic, const std::string& other,
                                   std::size_t count) {
    constexpr std::size_t kKeys = 10;
    auto sent = letters(topic, count, kKeys);
    for (std::size_t i = 3; i < sent.size(); i += kKeys) sent[i].topic = other;
    return sent;
}

std::vector<Letter> letters_to(const std::string& topic, const std::vector<Letter>& all) {
    std::vector<Letter> found;
    for (const Letter& letter : all) {
        if (letter.topic == topic) found.push_back(letter);
    }
    return found;
}

void deliver_while_one_waits(spi::Sink& sink, const std::vector<Letter>& sent,
                             const std::string& part, const std::function<void()>& repair) {
    Courier courier(sink);
    courier.max_publish_per_poll = 50;
    courier.max_part_failures = 100'000;
    bool repaired = false;
    courier.after_poll = [&](const Courier& now) {
        if (repaired || now.acknowledged() < sent.size() * 9 / 10) return;
        EXPECT_EQ(now.failures_by_part().count(part), 1U);
        repair();
        repaired = true;
    };
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_TRUE(repaired);
    EXPECT_TRUE(courier.dead().empty()) << describe(courier.dead()[0].error);
    EXPECT_EQ(courier.counted_attempts(), 0U);
    EXPECT_EQ(courier.destination_failures(), 0U);
    ASSERT_EQ(courier.failures_by_part().size(), 1U);
    EXPECT_EQ(courier.failures_by_part().begin()->first, part);
}

void expect_limits_while_it_hangs(spi::Sink& sink, const std::string& topic,
                                  const std::function<void()>& pause,
                                  const std::function<void()>& resume) {
    ASSERT_EQ(Courier(sink).deliver(letters(topic, 10, 10)), "");
    pause();
    const auto sent = letters(topic, 1'000, 1'000, 10'000);
    std::size_t taken = 0;
    spi::Completions out;
    for (int i = 0; i < 10; ++i) {
        while (taken < sent.size() && sink.publish(sent[taken].record(taken))) ++taken;
        sink.poll(std::chrono::milliseconds(10), out);
    }
    resume();
    EXPECT_TRUE(out.empty());
    EXPECT_LE(taken, 101U);
    EXPECT_GT(taken, 50U);
}

void expect_no_failure_after_idling(spi::Sink& sink, const std::string& topic,
                                    const std::function<void()>& restart) {
    ASSERT_EQ(Courier(sink).deliver(letters(topic, 10, 10)), "");
    restart();
    auto more = letters(topic, 20, 10);
    more.erase(more.begin(), more.begin() + 10);
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(more), "");
    EXPECT_EQ(courier.failures(), 0U);
}

BreakableFile::BreakableFile(const std::string& text) : text_(text) {
    mend();
    using std::filesystem::perms;
    std::filesystem::permissions(path(), perms::owner_read | perms::owner_write);
}

void BreakableFile::write(const std::string& text) const {
    std::ofstream(path(), std::ios::trunc) << text;
}

void expect_an_outage_while_broken(spi::Sink& sink, const std::string& topic,
                                   const BreakableFile& file,
                                   const std::function<void()>& restart) {
    ASSERT_EQ(Courier(sink).deliver(letters(topic, 10, 10)), "");
    file.empty();
    restart();
    // Until it tries again it repeats what it knows.
    const auto end = std::chrono::steady_clock::now() + kMostWait;
    bool said = false;
    while (!said && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const spi::FailedRecord failed = failure_of(sink, topic);
        ASSERT_EQ(failed.error.advice, Advice::kRetryDestination) << describe(failed.error);
        said = failed.error.message.find(file.path()) != std::string::npos;
    }
    EXPECT_TRUE(said) << "nothing was said of the file";
    file.mend();
    EXPECT_EQ(Courier(sink).deliver(letters(topic, 10, 10)), "");
}

void expect_tls_proves_who_it_is(const std::string& option_prefix, const CheckOfHost& check,
                                 const Certificates& certificates) {
    const std::string right = "ca_file=" + certificates.file("ca.crt");
    const Status proven = check("localhost", right);
    EXPECT_TRUE(proven.ok()) << describe(proven.error());
    const Status other = check("localhost", "ca_file=" + certificates.file("other.crt"));
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.error().code, ErrorCode::kConnectFailed) << describe(other.error());
    EXPECT_NE(other.error().message.find(option_prefix + "ca_file"), std::string::npos);
    EXPECT_FALSE(check("localhost", "").ok());
    EXPECT_FALSE(check("127.0.0.1", right).ok());
    const Status unproven = check("localhost", "verify=false");
    EXPECT_TRUE(unproven.ok()) << describe(unproven.error());
    const Status no_file = check("localhost", "ca_file=/no/such/file");
    ASSERT_FALSE(no_file.ok());
    EXPECT_EQ(no_file.error().code, ErrorCode::kConfigInvalid) << describe(no_file.error());
}

CuttingWay::CuttingWay(int port, const std::string& ends_for)
    : port_(free_port()),
      process_({.command = {"/usr/bin/python3", "-B",
                            std::string(OUTBOX_SOURCE_DIR) + "/tests/brokers/forward.py",
                            std::to_string(port_), std::to_string(port), ends_for}}) {
    const auto serves = eventually(std::chrono::seconds(60), "the way is open", [this] {
        return process_.stdout_text().find("forwards") != std::string::npos;
    });
    if (!serves) throw std::runtime_error("forward.py: " + process_.stderr_text());
}

void expect_what_ends_connections_is_found(spi::Sink& sink, const std::string& topic,
                                           const std::string& part) {
    constexpr std::size_t kBad = 5;
    // When nothing has passed for so long, a suspect goes all the same, and it seems an outage.
    constexpr std::chrono::milliseconds kRest{900};
    auto sent = letters(topic, 100'000, 1'000);
    for (std::size_t i = 0; i < kBad; ++i) sent[i].value = kEndsConnections;
    std::set<std::size_t> found;
    std::map<std::size_t, std::size_t> outages;
    std::size_t taken = 0;
    auto passed_at = std::chrono::steady_clock::now();
    spi::Completions out;
    const auto offer = [&](std::size_t index) {
        EXPECT_TRUE(sink.publish(sent[index].record(index)));
    };
    const auto poll = [&] {
        out.clear();
        sink.poll(std::chrono::milliseconds(10), out);
        taken += out.acknowledged.size();
        const auto now = std::chrono::steady_clock::now();
        const bool seems_away = now - passed_at > kRest;
        if (!out.acknowledged.empty()) passed_at = now;
        for (const spi::FailedRecord& failed : out.failed) {
            // What is offered while it seems to be an outage fails, too.
            const bool may_fail =
                failed.token < kBad || taken == out.acknowledged.size() || seems_away;
            EXPECT_TRUE(may_fail) << describe(failed.error);
            if (failed.error.advice == Advice::kRetryEvent) {
                EXPECT_EQ(failed.error.code, ErrorCode::kRecordRefused) << describe(failed.error);
                const std::string name = "event " + sent[failed.token].id + " ";
                EXPECT_NE(failed.error.message.find(name), std::string::npos)
                    << describe(failed.error);
                found.insert(failed.token);
                continue;
            }
            EXPECT_EQ(failed.error.advice, Advice::kRetryDestination) << describe(failed.error);
            EXPECT_EQ(failed.part, part);
            ++outages[failed.token];
            offer(failed.token);
        }
    };
    const auto end = std::chrono::steady_clock::now() + kMostWait;
    const auto in_time = [&] { return std::chrono::steady_clock::now() < end; };
    for (std::size_t i = 0; i < kBad; ++i) offer(i);
    const auto failed_twice = [&](const auto& one) { return one.second >= 2; };
    while (in_time() &&
           (outages.size() < kBad || !std::all_of(outages.begin(), outages.end(), failed_twice))) {
        poll();
    }
    EXPECT_EQ(outages.size(), kBad);
    EXPECT_TRUE(found.empty()) << "nothing else has passed";
    std::size_t next = kBad;
    for (; in_time() && found.size() < kBad && next < sent.size(); ++next) {
        offer(next);
        poll();
    }
    EXPECT_EQ(found.size(), kBad);
    while (in_time() && taken < next - kBad) poll();
    EXPECT_EQ(taken, next - kBad) << "each of the others, and none has failed";
}

std::vector<Letter> deliver_many_sizes(spi::Sink& sink, const std::string& topic) {
    constexpr std::array<std::size_t, 7> kSizes = {15'000, 52'000, 25'000, 52'000,
                                                   40'000, 14'000, 51'000};
    auto sent = letters(topic, 150, 10);
    for (std::size_t i = 0; i < sent.size(); ++i) {
        sent[i].value = std::string(kSizes[i % kSizes.size()], 'x');
    }
    return deliver_without_failure(sink, std::move(sent));
}

std::vector<Letter> deliver_one_by_one(spi::Sink& sink, const std::string& topic,
                                       std::size_t keys) {
    auto sent = letters(topic, 100, keys);
    for (Letter& letter : sent) letter.value = "message-text";
    return deliver_without_failure(sink, std::move(sent));
}

void expect_once_in_order(const std::vector<Letter>& sent, const std::vector<Arrived>& arrived) {
    EXPECT_EQ(arrived.size(), sent.size()) << "repeats";
    EXPECT_EQ(missing_or_reordered(sent, arrived), "");
}

}  // namespace outbox::test
