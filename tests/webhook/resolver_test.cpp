#include "webhook/resolver.h"

#include <atomic>
#include <condition_variable>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <poll.h>
#include <set>
#include <thread>

#include "tests/support/eventually.h"

namespace outbox::webhook {
namespace {

using namespace std::chrono_literals;
using test::eventually;

// A name server of which some hosts are never answered until the test lets them.
struct NameServer {
    std::mutex mutex;
    std::condition_variable changed;
    std::set<std::string> silent;
    int asked = 0;

    std::vector<Address> look_up(const std::string& host, NoAddress& no) {
        std::unique_lock lock(mutex);
        ++asked;
        changed.notify_all();
        changed.wait(lock, [&] { return silent.count(host) == 0; });
        if (host.starts_with("nowhere")) {
            no.why = "no such host";
            return {};
        }
        return {parse_address("192.0.2.1").value()};
    }
    void answer_all() {
        const std::lock_guard lock(mutex);
        silent.clear();
        changed.notify_all();
    }
    int times_asked() {
        const std::lock_guard lock(mutex);
        return asked;
    }
};

// The lookups may outlive the test's resolver, so they share the server.
Lookup lookup_of(const std::shared_ptr<NameServer>& server) {
    return [server](const std::string& host, NoAddress& no) { return server->look_up(host, no); };
}

std::vector<Resolved> take_until(Resolver& resolver, std::size_t count) {
    std::vector<Resolved> out;
    EXPECT_TRUE(eventually(60s, "hosts are resolved", [&] {
        resolver.take(out);
        return out.size() >= count;
    }));
    return out;
}

TEST(WebhookResolver, SaysWhatAHostResolvesTo) {
    const auto server = std::make_shared<NameServer>();
    Resolver resolver({}, lookup_of(server));
    resolver.start(1, "a.example");
    const auto first = take_until(resolver, 1);
    EXPECT_EQ(first[0].token, 1U);
    EXPECT_EQ(to_text(first[0].addresses.at(0)), "192.0.2.1");
    resolver.start(2, "nowhere.example");
    const auto second = take_until(resolver, 1);
    EXPECT_EQ(second[0].token, 2U);
    EXPECT_EQ(second[0].no.why, "no such host");
    EXPECT_TRUE(second[0].addresses.empty());
}

TEST(WebhookResolver, AnAnswerWakesWhoWaits) {
    Resolver resolver({}, lookup_of(std::make_shared<NameServer>()));
    pollfd wake{resolver.wake_fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&wake, 1, 0), 0);
    resolver.start(1, "a.example");
    EXPECT_EQ(::poll(&wake, 1, 30'000), 1);
    EXPECT_EQ(take_until(resolver, 1).size(), 1U);
    EXPECT_EQ(::poll(&wake, 1, 0), 0);
}

TEST(WebhookResolver, AHostThatIsNotAnsweredDelaysNoOtherAndIsGivenUp) {
    const auto server = std::make_shared<NameServer>();
    server->silent = {"silent.example"};
    Resolver resolver({.max_threads = 2, .timeout = 50ms}, lookup_of(server));
    for (std::uint64_t token = 1; token <= 20; ++token) resolver.start(token, "silent.example");
    const auto given_up = take_until(resolver, 20);
    EXPECT_THAT(given_up[19].no.why, testing::HasSubstr("silent.example"));
    // All of them share one lookup, also those that come while it hangs.
    EXPECT_LE(server->times_asked(), 1);
    std::vector<Resolved> out;
    EXPECT_TRUE(eventually(60s, "another host is resolved", [&] {
        out.clear();
        resolver.start(30, "a.example");
        resolver.take(out);
        return !out.empty() && !out[0].addresses.empty();
    }));
    server->answer_all();
}

TEST(WebhookResolver, HostsThatAreNotAnsweredLeaveThreadsForThoseThatWere) {
    const auto server = std::make_shared<NameServer>();
    Resolver resolver({.max_threads = 2, .max_hanging = 4, .timeout = 30s}, lookup_of(server));
    for (std::uint64_t token = 1; token <= 10; ++token) {
        resolver.start(token, "ok" + std::to_string(token) + ".example");
    }
    take_until(resolver, 10);
    for (std::uint64_t token = 100; token < 200; ++token) {
        const std::string host = "silent" + std::to_string(token) + ".example";
        {
            const std::lock_guard lock(server->mutex);
            server->silent.insert(host);
        }
        resolver.start(token, host);
    }
    for (std::uint64_t token = 1; token <= 10; ++token) {
        resolver.start(token, "ok" + std::to_string(token) + ".example");
    }
    for (const Resolved& one : take_until(resolver, 10)) {
        EXPECT_FALSE(one.addresses.empty()) << one.no.why;
    }
    EXPECT_LE(server->times_asked(), 24);
    server->answer_all();
}

TEST(WebhookResolver, ALookupThatHangsGivesItsPlaceToAnother) {
    const auto server = std::make_shared<NameServer>();
    server->silent = {"silent.example"};
    Resolver resolver({.max_threads = 1, .max_hanging = 2, .timeout = 5s}, lookup_of(server));
    resolver.start(1, "silent.example");
    resolver.start(2, "a.example");
    EXPECT_LT(resolver.next_end(), std::chrono::steady_clock::now() + 2s);
    const auto first = take_until(resolver, 1);
    EXPECT_EQ(first[0].token, 2U);
    EXPECT_FALSE(first[0].addresses.empty()) << first[0].no.why;
    server->answer_all();
}

TEST(WebhookResolver, WhoWaitedForAThreadInVainIsNotAtFaultAndTakesNone) {
    const auto server = std::make_shared<NameServer>();
    server->silent = {"silent.example"};
    Resolver resolver({.max_threads = 1, .max_hanging = 1, .timeout = 200ms}, lookup_of(server));
    resolver.start(1, "silent.example");
    resolver.start(2, "waits.example");
    const auto given_up = take_until(resolver, 2);
    EXPECT_EQ(given_up[0].no.whose, NoAddress::Whose::kNobody) << given_up[0].no.why;
    EXPECT_EQ(given_up[1].no.whose, NoAddress::Whose::kOurs) << given_up[1].no.why;
    server->answer_all();
    resolver.start(3, "b.example");
    EXPECT_EQ(take_until(resolver, 1)[0].token, 3U);
    EXPECT_EQ(server->times_asked(), 2);
}

TEST(WebhookResolver, MoreHostsThanThreadsAllGetAnAnswer) {
    const auto server = std::make_shared<NameServer>();
    Resolver resolver({.max_threads = 3, .timeout = 30s}, lookup_of(server));
    for (std::uint64_t token = 1; token <= 100; ++token) {
        resolver.start(token, "host" + std::to_string(token) + ".example");
    }
    std::set<std::uint64_t> tokens;
    for (const Resolved& one : take_until(resolver, 100)) tokens.insert(one.token);
    EXPECT_EQ(tokens.size(), 100U);
}

TEST(WebhookResolver, EachStartAsksAnew) {
    const auto server = std::make_shared<NameServer>();
    Resolver resolver({}, lookup_of(server));
    for (int i = 1; i <= 3; ++i) {
        resolver.start(1, "a.example");
        take_until(resolver, 1);
        EXPECT_EQ(server->times_asked(), i);
    }
}

TEST(WebhookResolver, WhatIsCancelledHasNoAnswerAndAnEndWaitsForNobody) {
    const auto server = std::make_shared<NameServer>();
    server->silent = {"silent.example"};
    {
        Resolver resolver({.max_threads = 1, .timeout = 30s}, lookup_of(server));
        resolver.start(1, "silent.example");
        resolver.start(2, "waits.example");
        EXPECT_NE(resolver.next_end(), std::chrono::steady_clock::time_point::max());
        resolver.cancel(1);
        resolver.cancel(2);
        EXPECT_EQ(resolver.next_end(), std::chrono::steady_clock::time_point::max());
        std::vector<Resolved> out;
        resolver.take(out);
        EXPECT_TRUE(out.empty());
    }
    server->answer_all();
}

TEST(WebhookResolver, TheAnswersForManyStandInTheirOrderWhoeverWasAnsweredFirst) {
    const auto server = std::make_shared<NameServer>();
    server->silent = {"nowhere.first.example"};
    const auto lookup = [server](const std::string& host, NoAddress& no) {
        auto found = server->look_up(host, no);
        server->answer_all();
        if (found.empty()) std::this_thread::sleep_for(50ms);  // behind the other one
        return found;
    };
    const std::vector<std::string> hosts{"nowhere.first.example", "second.example"};
    const auto answers = resolve_all(hosts, {.timeout = 60s}, lookup);
    ASSERT_EQ(answers.size(), 2U);
    EXPECT_EQ(answers[0].token, 0U);
    EXPECT_EQ(answers[0].no.why, "no such host");
    EXPECT_EQ(answers[1].token, 1U);
    EXPECT_FALSE(answers[1].addresses.empty());
}

TEST(WebhookResolver, AsksTheSystem) {
    NoAddress no;
    EXPECT_FALSE(system_lookup("localhost", no).empty());
    EXPECT_EQ(no.why, "");
    EXPECT_TRUE(system_lookup("nobody.invalid", no).empty());
    EXPECT_THAT(no.why, testing::HasSubstr("nobody.invalid has no address"));
}

}  // namespace
}  // namespace outbox::webhook
