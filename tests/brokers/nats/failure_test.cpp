// What a real NATS does to the sink in mid-stream.

#include <arpa/inet.h>
#include <fstream>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sstream>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "brokers/nats/login.h"
#include "brokers/nats/sink.h"
#include "tests/brokers/nats/server.h"
#include "tests/brokers/troubles.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nats::NatsConfig;
using nats::NatsSink;

NatsServer& server() {
    static NatsServer nats(broker_certificates().folder());
    return nats;
}

std::string new_name() {
    static int names = 0;
    return "failure-" + std::to_string(++names);
}

std::string new_stream(const std::vector<std::string>& options = {}) {
    std::string name = new_name();
    server().make_stream(name, name, options);
    return name;
}

NatsConfig config_of(const std::string& url) {
    auto made = nats::make_config(url, {}).value_or_throw();
    made.connect_timeout = 60s;  // a server may be given no processor for some
    return made;
}

NatsConfig config() {
    return config_of(server().url());
}

void expect_once_in_order(const std::string& subject, const std::vector<Letter>& sent) {
    test::expect_once_in_order(sent, server().arrived(subject, sent.size()));
}

TEST(NatsFailure, AServerThatIsKilledUnderLoadGetsEachEventOnce) {
    const std::string subject = new_stream();
    NatsSink sink(config());
    const auto sent = letters(subject, 5'000, 50);
    deliver_through(sink, sent, 1'000, [] { server().kill(); }, [] { server().start(); });
    expect_once_in_order(subject, sent);
    EXPECT_EQ(notes_of(sink).find("destination_set_back"), std::string::npos);
}

TEST(NatsFailure, RepeatsAreDroppedWithinTheWindowAndCountAsDone) {
    const std::string subject = new_stream();
    const auto sent = letters(subject, 1'000, 50);
    ASSERT_EQ(Courier(*std::make_unique<NatsSink>(config())).deliver(sent), "");
    ASSERT_EQ(Courier(*std::make_unique<NatsSink>(config())).deliver(sent), "");
    expect_once_in_order(subject, sent);
}

// As after a crash of the machine, or where it was removed and made anew.
TEST(NatsFailure, AStreamThatForgotWhatItAcknowledgedIsSaid) {
    const std::string subject = new_stream();
    auto one_producer = config();
    one_producer.producer = subject;
    const auto sent = letters(subject, 300, 10);
    const auto part = [&](std::size_t from) {
        return std::vector<Letter>(sent.begin() + static_cast<std::ptrdiff_t>(from),
                                   sent.begin() + static_cast<std::ptrdiff_t>(from) + 100);
    };
    // Each term of a relay makes its sinks anew.
    ASSERT_EQ(Courier(*std::make_unique<NatsSink>(one_producer)).deliver(part(0)), "");
    NatsSink sink(one_producer);
    ASSERT_EQ(Courier(sink).deliver(part(0)), "");  // the stream has them
    server().ask({"purge", subject});
    ASSERT_EQ(Courier(sink).deliver(part(100)), "");
    ASSERT_EQ(notes_of(sink), "") << "who empties a stream knows it";
    server().ask({"remove", subject});
    server().make_stream(subject, subject);
    ASSERT_EQ(Courier(sink).deliver(part(200)), "");
    const std::string notes = notes_of(sink);
    EXPECT_NE(notes.find("destination_set_back error=stream " + subject), std::string::npos)
        << notes;
    EXPECT_NE(notes.find("the number 1, and had acknowledged "), std::string::npos) << notes;
    EXPECT_EQ(notes_of(sink), "") << "it is said once";
    server().ask({"remove", subject});
    server().make_stream(subject, subject);
    NatsSink next(one_producer);
    ASSERT_EQ(Courier(next).deliver(part(0)), "");
    EXPECT_NE(notes_of(next).find("destination_set_back"), std::string::npos);
}

TEST(NatsFailure, ASubjectWithoutAStreamWaitsForOneAndDelaysNobodyElse) {
    const std::string subject = new_stream();
    const std::string missing = new_name();
    NatsSink sink(config());
    const auto sent = letters_to_two(subject, missing);
    deliver_while_one_waits(sink, sent, "subject " + missing,
                            [&] { server().make_stream(missing, missing); });
    for (const std::string& one : {subject, missing}) {
        expect_once_in_order(one, letters_to(one, sent));
    }
}

TEST(NatsFailure, AStreamThatIsFullTakesAllOnceItHasRoom) {
    const std::string full = new_stream({"max_msgs=100", "discard=\"new\""});
    const std::string other = new_stream();
    NatsSink sink(config());
    auto sent = letters(full, 400, 10);
    for (std::size_t i = 0; i < sent.size(); i += 2) sent[i].topic = other;
    Courier courier(sink);
    courier.max_part_failures = 1'000;
    bool raised = false;
    courier.after_poll = [&](const Courier& now) {
        if (raised || now.acknowledged() < 300) return;
        EXPECT_EQ(now.failures_by_part().count("subject " + full), 1U);
        server().ask({"update", full, "max_msgs=1000"});
        raised = true;
    };
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_TRUE(raised);
    EXPECT_TRUE(courier.dead().empty());
    EXPECT_EQ(courier.counted_attempts(), 0U);
    for (const std::string& one : {other, full}) expect_once_in_order(one, letters_to(one, sent));
}

TEST(NatsFailure, AnEventThatIsTooLargeAloneIsDead) {
    const std::string subject = new_stream({"max_msg_size=100000"});
    NatsSink sink(config());
    auto sent = letters(subject, 1'000, 10);
    sent[500].value = std::string(200'000, 'x');               // for the stream
    sent[600].value = std::string(std::size_t{9} << 20, 'x');  // for the server
    Courier courier(sink);
    courier.max_publish_per_poll = 100;
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 2U);
    EXPECT_EQ(courier.dead()[0].index, 500U);
    EXPECT_EQ(courier.dead()[1].index, 600U);
    EXPECT_NE(courier.dead()[0].error.message.find("max_msg_size"), std::string::npos);
    EXPECT_NE(courier.dead()[1].error.message.find("max_payload"), std::string::npos);
    for (const auto& dead : courier.dead()) {
        EXPECT_EQ(dead.error.code, ErrorCode::kPayloadTooLarge) << describe(dead.error);
    }
    EXPECT_EQ(courier.failures(), 2U);
    sent.erase(sent.begin() + 600);
    sent.erase(sent.begin() + 500);
    expect_once_in_order(subject, sent);
}

TEST(NatsFailure, AHeaderThatCommandsTheServerAloneIsDead) {
    const std::string subject = new_stream();
    NatsSink sink(config());
    auto sent = letters(subject, 100, 10);
    sent[50].headers.emplace_back("Nats-Rollup", "all");
    sent[60].headers.emplace_back("not a name", "x");
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 2U);
    EXPECT_EQ(courier.dead()[0].error.code, ErrorCode::kRecordRefused);
    sent.erase(sent.begin() + 60);
    sent.erase(sent.begin() + 50);
    expect_once_in_order(subject, sent);
}

TEST(NatsFailure, AnotherStreamThanTheOneThatIsNamedTakesNothing) {
    const std::string named = new_stream();
    const std::string other = new_stream();
    NatsSink sink(config_of(server().url() + "?stream=" + named));
    EXPECT_TRUE(sink.check().ok());
    EXPECT_EQ(outcome_of(sink, letters(named, 1, 1)).acknowledged.size(), 1U);
    const auto failed = failure_of(sink, other);
    EXPECT_EQ(failed.error.code, ErrorCode::kTopicUnknown) << describe(failed.error);
    EXPECT_EQ(failed.part, "subject " + other);
}

TEST(NatsFailure, AStreamThatAcknowledgesNothingIsSaidSo) {
    const std::string subject = new_stream({"no_ack=true"});
    auto impatient = config_of(server().url() + "?stream=" + subject);
    impatient.stuck_after = 3s;  // of a server that answers all else meanwhile
    NatsSink sink(impatient);
    EXPECT_EQ(sink.check().error().code, ErrorCode::kUnsupported);
    const auto failed = failure_of(sink, subject);
    EXPECT_EQ(failed.part, "subject " + subject);
    EXPECT_NE(failed.error.message.find("no_ack"), std::string::npos) << describe(failed.error);
}

TEST(NatsFailure, AServerThatHangsIsDownUntilItGoesOn) {
    const std::string subject = new_stream();
    auto impatient = config();
    impatient.stuck_after = 500ms;
    impatient.connect_timeout = 1s;
    NatsSink sink(impatient);
    const auto sent = letters(subject, 4'000, 200, 5'000);
    deliver_through(sink, sent, 500, [] { server().pause(); }, [] { server().resume(); });
    expect_once_in_order(subject, sent);
}

TEST(NatsFailure, TakesNoMoreThanItsLimitsWhileTheServerHangs) {
    auto limited = config();
    limited.max_bytes = 1'000'000;
    NatsSink sink(limited);
    expect_limits_while_it_hangs(
        sink, new_stream(), [] { server().pause(); }, [] { server().resume(); });
}

TEST(NatsFailure, AnIdleConnectionThatWasClosedIsNoFailure) {
    NatsSink sink(config());
    expect_no_failure_after_idling(sink, new_stream(), [] {
        server().stop();
        server().start();
    });
}

TEST(NatsFailure, AnEventThatEndsEachConnectionIsFoundWhileOthersPass) {
    const CuttingWay way(server().port());
    NatsSink sink(config_of("nats://relay:s3cret@127.0.0.1:" + std::to_string(way.port())));
    expect_what_ends_connections_is_found(sink, new_stream());
}

TEST(NatsFailure, WhatAConnectionHasCarriedBeforeItsEndIsNoEventsFault) {
    const std::string url = "nats://relay:s3cret@127.0.0.1:";
    const CuttingWay narrow(server().port(), kManyBytes);
    NatsSink sink(config_of(url + std::to_string(narrow.port())));
    const std::string subject = new_stream();
    expect_once_in_order(subject, deliver_many_sizes(sink, subject));
    const CuttingWay single(server().port(), kSecondMessage);
    NatsSink other(config_of(url + std::to_string(single.port())));
    const std::string second = new_stream();
    expect_once_in_order(second, deliver_one_by_one(other, second));
}

TEST(NatsFailure, TheNextServerOfTheUrlIsTried) {
    const std::string subject = new_stream();
    NatsSink sink(
        config_of("nats://relay:s3cret@127.0.0.1:1,127.0.0.1:" + std::to_string(server().port())));
    EXPECT_TRUE(sink.check().ok());
    EXPECT_EQ(outcome_of(sink, letters(subject, 1, 1)).acknowledged.size(), 1U);
}

TEST(NatsFailure, SaysWhatIsWrongWithUserAndAddress) {
    const auto error_of = [](const std::string& url) {
        NatsSink sink(config_of(url));
        const Status status = sink.check();
        return status.ok() ? ErrorInfo{} : status.error();
    };
    const auto password = error_of(server().url("relay", "wrong-one"));
    EXPECT_EQ(password.code, ErrorCode::kAuthFailed) << describe(password);
    EXPECT_EQ(password.message.find("wrong-one"), std::string::npos);
    const std::string address = "127.0.0.1:" + std::to_string(server().port());
    EXPECT_EQ(error_of("nats://" + address).code, ErrorCode::kAuthFailed);
    EXPECT_EQ(error_of("nats://127.0.0.1:1").code, ErrorCode::kConnectFailed);
    EXPECT_EQ(error_of("nats://no-such-host.invalid").code, ErrorCode::kConnectFailed);
    const auto failed = [&] {
        NatsSink sink(config_of(server().url("relay", "wrong-one")));
        return failure_of(sink, "s");
    }();
    EXPECT_EQ(failed.error.code, ErrorCode::kAuthFailed);
    EXPECT_EQ(failed.error.advice, Advice::kRetryDestination);
    EXPECT_EQ(failed.part, "");
}

TEST(NatsFailure, AServerWithoutJetStreamSaysSo) {
    const TemporaryFolder folder("plain");
    const std::string port = std::to_string(free_port());
    const Process plain({.command = {"nats-server", "-a", "127.0.0.1", "-p", port},
                         .output_folder = folder.path(),
                         .death_signal = SIGKILL});
    NatsSink sink(config_of("nats://127.0.0.1:" + port));
    Status status;
    ASSERT_TRUE(eventually(60s, "it answers", [&] {
        status = sink.check();
        return status.error().backend_code != "CONNECT";
    }));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported) << describe(status.error());
    EXPECT_EQ(failure_of(sink, "s").error.code, ErrorCode::kTopicUnknown);
}

// The lines of the guide, between ```conf and ```, with their users.
std::string documented_users() {
    const std::string page = read_file(GUIDE_PAGE);
    const std::size_t begin = page.find("```conf\n") + 8;
    return page.substr(begin, page.find("```", begin) - begin);
}

TEST(NatsFailure, TheDocumentedRightsAreEnough) {
    NatsServer limited({}, documented_users());
    const std::string admin = limited.url("admin", "s3cret");
    limited.client({admin, "stream", "ORDERS", "orders.>"});
    NatsSink sink(config_of(limited.url("relay", "s3cret") + "?stream=ORDERS"));
    const Status status = sink.check();
    EXPECT_TRUE(status.ok()) << describe(status.error());
    const auto sent = letters("orders.new", 100, 10);
    ASSERT_EQ(Courier(sink).deliver(sent), "");
    const std::string read = limited.client({admin, "read", "orders.new", "100", "60"});
    EXPECT_EQ(std::count(read.begin(), read.end(), '\n'), 100);

    // A subject that the user may not publish to waits alone.
    limited.client({admin, "stream", "SECRET", "secret"});
    auto mixed = letters("orders.new", 40, 4);
    for (std::size_t i = 0; i < mixed.size(); ++i) {
        mixed[i].id = "mixed-" + std::to_string(i);
        mixed[i].headers.clear();
    }
    for (std::size_t i = 1; i < mixed.size(); i += 4) mixed[i].topic = "secret";
    NatsSink any(config_of(limited.url("relay", "s3cret")));
    const auto out = outcome_of(any, mixed);
    EXPECT_EQ(out.acknowledged.size(), 30U);
    ASSERT_EQ(out.failed.size(), 10U);
    EXPECT_EQ(out.failed[0].error.code, ErrorCode::kNoRights) << describe(out.failed[0].error);
    EXPECT_EQ(out.failed[0].part, "subject secret");
}

// The server's complaint quotes the subject, whatever is in it.
TEST(NatsFailure, ASubjectThatIsRefusedWaitsAloneWhateverItIsCalled) {
    NatsServer limited({}, documented_users());
    const std::string admin = limited.url("admin", "s3cret");
    limited.client({admin, "stream", "ORDERS", "orders.>"});
    limited.client({admin, "stream", "SECRET", "secret.>"});
    NatsSink sink(config_of(limited.url("relay", "s3cret")));
    std::size_t n = 0;
    for (const std::string subject :
         {"secret.Authorization.7", "secret.Authentication", "secret.a\"b\\", "secret.\u00ad"}) {
        auto sent = letters("orders.new", 20, 2);
        for (Letter& letter : sent) letter.id = "event-" + std::to_string(n++);
        for (std::size_t i = 1; i < sent.size(); i += 2) sent[i].topic = subject;
        const auto out = outcome_of(sink, sent);
        EXPECT_EQ(out.acknowledged.size(), 10U) << subject;
        ASSERT_EQ(out.failed.size(), 10U) << subject;
        for (const auto& failed : out.failed) {
            EXPECT_EQ(failed.error.code, ErrorCode::kNoRights) << describe(failed.error);
            EXPECT_EQ(failed.part, "subject " + subject);
        }
    }
}

TEST(NatsFailure, ASeedProvesWhoWeAre) {
    constexpr std::string_view kSeed = "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y";
    const std::string user = nats::sign("", kSeed).value_or_throw().public_key;
    NatsServer keyed({}, "authorization { users: [ { nkey: " + user + " } ] }");
    const TemporaryFolder folder("creds");
    const auto error_of = [&](const std::string& text) {
        const auto file = folder / "relay.creds";
        std::filesystem::remove(file);
        std::ofstream(file) << text;
        std::filesystem::permissions(file, std::filesystem::perms::owner_read);
        const Status status =
            NatsSink(config_of("nats://127.0.0.1:" + std::to_string(keyed.port()) +
                               "?creds_file=" + file.string()))
                .check();
        return status.ok() ? std::string() : describe(status.error());
    };
    EXPECT_EQ(error_of(std::string(kSeed) + "\n"), "");
    EXPECT_EQ(error_of("-----BEGIN USER NKEY SEED-----\n" + std::string(kSeed) +
                       "\n------END USER NKEY SEED------\n"),
              "");
    // Another's, and what is none.
    const std::string other = "SUAACAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H7QXY";
    EXPECT_NE(error_of(other), "");
    const std::string broken = error_of("-----BEGIN USER NKEY SEED-----\nSUAA\n---\n");
    EXPECT_NE(broken.find("nats.creds_file"), std::string::npos) << broken;
    EXPECT_EQ(broken.find("SUAA"), std::string::npos);
    const auto gone = NatsSink(config_of("nats://127.0.0.1:" + std::to_string(keyed.port()) +
                                         "?creds_file=/no/such/file"))
                          .check();
    EXPECT_NE(gone.error().message.find("/no/such/file"), std::string::npos);
}

TEST(NatsFailure, TlsProvesWhoTheServerIs) {
    const auto url = [](const std::string& host, const std::string& options) {
        return "tls://relay:s3cret@" + host + ":" + std::to_string(server().port()) + "?" + options;
    };
    expect_tls_proves_who_it_is("nats.", [&](const std::string& host, const std::string& options) {
        return NatsSink(config_of(url(host, options))).check();
    });

    const std::string subject = new_stream();
    NatsSink sink(config_of(url("localhost", "ca_file=" + broker_certificates().file("ca.crt"))));
    const auto sent = letters(subject, 5'000, 20, 2'000);
    deliver_through(sink, sent, 1'000, [] { server().kill(); }, [] { server().start(); });
    expect_once_in_order(subject, sent);
}

// As an editor or `echo` leaves it while it writes.
TEST(NatsFailure, AFileThatIsBrokenForAMomentIsAnOutage) {
    const BreakableFile ca(read_file(broker_certificates().file("ca.crt")));
    NatsSink sink(config_of("tls://relay:s3cret@localhost:" + std::to_string(server().port()) +
                            "?ca_file=" + ca.path()));
    expect_an_outage_while_broken(sink, new_stream(), ca, [] {
        server().kill();
        server().start();
    });
}

// As one on the way could add to the server's first line, which is in clear.
TEST(NatsFailure, NothingThatCameBeforeTlsIsHeard) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(::listen(listener, 1), 0);
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    std::thread server([listener] {
        const int client = ::accept(listener, nullptr, nullptr);
        constexpr std::string_view kSaid =
            "INFO {\"headers\":true,\"tls_required\":true}\r\nPONG\r\n";
        EXPECT_EQ(::send(client, kSaid.data(), kSaid.size(), 0),
                  static_cast<ssize_t>(kSaid.size()));
        char ignored = 0;
        EXPECT_LE(::recv(client, &ignored, 1, 0), 0) << "no TLS was begun";
        ::close(client);
    });
    const Status status =
        NatsSink(config_of("tls://127.0.0.1:" + std::to_string(::ntohs(address.sin_port)) +
                           "?verify=false"))
            .check();
    server.join();
    ::close(listener);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("before TLS began"), std::string::npos)
        << describe(status.error());
}

TEST(NatsFailure, AServerThatWantsTlsAndOneThatHasNoneAreToldApart) {
    const std::string folder = broker_certificates().folder().string();
    NatsServer strict({}, "tls { cert_file: \"" + folder + "/server.pem\", key_file: \"" + folder +
                              "/server.pem\" }");
    const Status clear = NatsSink(config_of(strict.url())).check();
    ASSERT_FALSE(clear.ok());
    EXPECT_NE(clear.error().message.find("use tls://"), std::string::npos);
    NatsServer plain;
    const Status none =
        NatsSink(config_of("tls://relay:s3cret@127.0.0.1:" + std::to_string(plain.port()) +
                           "?verify=false"))
            .check();
    ASSERT_FALSE(none.ok());
    EXPECT_NE(none.error().message.find("has no TLS"), std::string::npos);
}

}  // namespace
}  // namespace outbox::test
