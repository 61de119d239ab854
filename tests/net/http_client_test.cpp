#include "net/http_client.h"

#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/support/certificates.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/process.h"

namespace outbox::net {
namespace {

using namespace std::chrono_literals;
using Kind = HttpFault::Kind;
using test::Certificates;
using test::eventually;
using test::Process;

// http_server.py, until this goes.
class Server {
  public:
    explicit Server(const std::string& certificate = {})
        : process_({.command = command(certificate)}) {
        EXPECT_TRUE(eventually(60s, "the server's port", [this] {
            port_ = process_.stdout_text();
            return port_.ends_with('\n');
        }));
        port_.pop_back();
    }
    [[nodiscard]] std::string url(const std::string& path, const std::string& host = "127.0.0.1",
                                  const std::string& scheme = "http") const {
        return scheme + "://" + host + ":" + port_ + path;
    }

  private:
    static std::vector<std::string> command(const std::string& certificate) {
        std::vector<std::string> all{"/usr/bin/python3", "-B", HTTP_SERVER};
        if (!certificate.empty()) all.push_back(certificate);
        return all;
    }

    Process process_;
    std::string port_;
};

Server& server() {
    static Server one;
    return one;
}

const Certificates& certificates() {
    static Certificates made;
    static const bool signed_now = [] {
        made.sign("server", "/CN=localhost", "subjectAltName=DNS:localhost,DNS:other.test");
        made.sign("expired", "/CN=localhost", "subjectAltName=DNS:localhost", -1);
        made.make_ca("other");
        return true;
    }();
    static_cast<void>(signed_now);
    return made;
}

Server& tls_server() {
    static Server one(certificates().file("server.pem"));
    return one;
}

HttpOptions trusting() {
    return {.ca_file = certificates().file("ca.crt")};
}

// Everything that comes of what is under way.
std::map<std::uint64_t, HttpOutcome> finish(HttpClient& client) {
    std::map<std::uint64_t, HttpOutcome> all;
    for (int i = 0; i < 600 && client.under_way() > 0; ++i) {
        std::vector<HttpOutcome> out;
        client.poll(100ms, out);
        for (HttpOutcome& one : out) {
            const std::uint64_t token = one.token;
            EXPECT_TRUE(all.emplace(token, std::move(one)).second) << "twice: " << token;
        }
    }
    EXPECT_EQ(client.under_way(), 0U);
    return all;
}

HttpOutcome ask(HttpClient& client, HttpRequest request) {
    client.start(7, std::move(request));
    auto all = finish(client);
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? HttpOutcome{} : std::move(all.begin()->second);
}

// A name server may take a question only when it is asked again, after five seconds.
HttpRequest patient(const std::string& url) {
    HttpRequest request;
    request.url = url;
    request.timeout = request.connect_timeout = 60s;
    return request;
}

HttpOutcome ask(HttpRequest request, const HttpOptions& options = {}) {
    HttpClient client(options);
    return ask(client, std::move(request));
}

nlohmann::json seen_by_server(const HttpOutcome& outcome) {
    EXPECT_FALSE(outcome.fault) << outcome.fault->text;
    EXPECT_EQ(outcome.status, 200) << outcome.body;
    return nlohmann::json::parse(outcome.body);
}

std::string text_of(const HttpOutcome& outcome) {
    return outcome.fault ? std::string(word_of(outcome.fault->kind)) + ": " + outcome.fault->text
                         : "status " + std::to_string(outcome.status);
}

#define EXPECT_FAULT(outcome, expected)                       \
    do {                                                      \
        const auto& one = (outcome);                          \
        ASSERT_TRUE(one.fault.has_value()) << text_of(one);   \
        EXPECT_EQ(one.fault->kind, expected) << text_of(one); \
    } while (false)

TEST(HttpClient, SendsTheRequestAsItIsAndAddsNothing) {
    const std::string body("a\0b\xFF", 4);
    const HttpOutcome outcome = ask({.method = "POST",
                                     .url = server().url("/echo?a=%20b/../c"),
                                     .headers = {{"X-One", "1"}, {"X-Empty", ""}, {"X-One", "2"}},
                                     .body = body});
    const auto seen = seen_by_server(outcome);
    EXPECT_EQ(seen["method"], "POST");
    EXPECT_EQ(seen["path"], "/echo?a=%20b/../c");
    EXPECT_EQ(seen["body"], std::string("a\0b\xC3\xBF", 5));
    std::vector<std::string> names;
    for (const auto& header : seen["headers"]) names.push_back(header[0]);
    EXPECT_EQ(names,
              (std::vector<std::string>{"Host", "X-One", "X-Empty", "X-One", "Content-Length"}));
    EXPECT_EQ(outcome.header("x-seen"), "yes");
    EXPECT_EQ(outcome.header("x-missing"), "");
    EXPECT_EQ(outcome.peer, "127.0.0.1");
}

TEST(HttpClient, SendsEachMethodWithAndWithoutABody) {
    HttpClient client;
    for (const std::string method : {"GET", "DELETE", "PUT", "POST"}) {
        for (const std::string body : {"", "text"}) {
            const auto seen = seen_by_server(
                ask(client, {.method = method, .url = server().url("/echo"), .body = body}));
            EXPECT_EQ(seen["method"], method);
            EXPECT_EQ(seen["body"], body) << method;
        }
    }
    const HttpOutcome head = ask(client, {.method = "HEAD", .url = server().url("/echo")});
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.body, "");
}

TEST(HttpClient, KeepsConnectionsForLaterRequests) {
    HttpClient client;
    std::set<int> connections;
    for (int i = 0; i < 5; ++i) {
        connections.insert(
            seen_by_server(ask(client, {.url = server().url("/echo")}))["connection"].get<int>());
    }
    EXPECT_EQ(connections.size(), 1U);
}

TEST(HttpClient, SendsManyAtOnce) {
    HttpClient client({.max_connections_per_host = 20});
    for (std::uint64_t i = 0; i < 20; ++i) client.start(i, {.url = server().url("/together=20")});
    EXPECT_EQ(client.under_way(), 20U);
    const auto all = finish(client);
    ASSERT_EQ(all.size(), 20U);
    for (const auto& [token, outcome] : all) EXPECT_EQ(outcome.body, "together") << token;
}

TEST(HttpClient, KeepsToTheLimitOfConnectionsAndLosesNothing) {
    HttpClient client({.max_connections_per_host = 3});
    for (std::uint64_t i = 0; i < 100; ++i) client.start(i, {.url = server().url("/echo")});
    const auto all = finish(client);
    ASSERT_EQ(all.size(), 100U);
    std::set<int> connections;
    for (const auto& [token, outcome] : all) {
        connections.insert(seen_by_server(outcome)["connection"].get<int>());
    }
    EXPECT_LE(connections.size(), 3U);
}

TEST(HttpClient, SaysThatNobodyListens) {
    const std::string nobody = "http://127.0.0.1:" + std::to_string(test::free_port()) + "/secret";
    const HttpOutcome outcome = ask({.url = nobody});
    EXPECT_FAULT(outcome, Kind::kConnect);
    EXPECT_EQ(outcome.fault->text.find("secret"), std::string::npos);
}

TEST(HttpClient, SaysThatAHostHasNoAddress) {
    EXPECT_FAULT(ask(patient("http://no-such-host.invalid/")), Kind::kResolve);
}

TEST(HttpClient, GivesUpAServerThatHangs) {
    EXPECT_FAULT(ask({.url = server().url("/hang"), .timeout = 300ms}), Kind::kTimeout);
}

TEST(HttpClient, GivesUpAServerThatIsSilentLongBeforeAllItsTimeIsOver) {
    EXPECT_FAULT(ask({.url = server().url("/hang"),
                      .timeout = std::chrono::hours(1),
                      .idle_timeout = std::chrono::seconds(1)}),
                 Kind::kTimeout);
}

TEST(HttpClient, GivesUpARequestThatWaitsForAConnection) {
    HttpClient client({.max_connections_per_host = 1});
    client.start(1, {.url = server().url("/hang"), .timeout = 60s});
    client.start(2, {.url = server().url("/echo"), .timeout = 200ms});
    std::vector<HttpOutcome> out;
    for (int i = 0; i < 600 && out.empty(); ++i) client.poll(100ms, out);
    ASSERT_EQ(out.size(), 1U);
    EXPECT_EQ(out[0].token, 2U);
    EXPECT_FAULT(out[0], Kind::kNoConnection);
    client.cancel(1);
    EXPECT_EQ(client.under_way(), 0U);
    EXPECT_EQ(ask(client, {.url = server().url("/echo")}).status, 200);
}

TEST(HttpClient, ACancelledRequestHasNoOutcomeAndFreesItsConnection) {
    HttpClient client({.max_connections_per_host = 1});
    client.start(1, {.url = server().url("/hang")});
    client.start(2, {.url = server().url("/hang")});
    client.start(3, {.url = server().url("/echo")});
    std::vector<HttpOutcome> out;
    client.poll(10ms, out);
    EXPECT_TRUE(out.empty());
    client.cancel(1);
    client.cancel(2);
    const auto all = finish(client);
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all.begin()->first, 3U);
    client.start(4, {.url = server().url("/hang")});
    client.start(5, {.url = "no URL at all"});
    client.cancel_all();
    EXPECT_EQ(client.under_way(), 0U);
    EXPECT_TRUE(finish(client).empty());
}

TEST(HttpClient, DoesNotFollowARedirect) {
    const HttpOutcome outcome = ask({.url = server().url("/redirect")});
    EXPECT_EQ(outcome.status, 302);
    EXPECT_EQ(outcome.header("location"), "/echo");
}

TEST(HttpClient, TakesNoMoreOfAnAnswerThanItsLimit) {
    const HttpOutcome refused =
        ask({.url = server().url("/endless")}, {.max_response_bytes = 100'000});
    EXPECT_FAULT(refused, Kind::kTooLarge);
    EXPECT_LE(refused.body.size(), 100'000U);
    HttpClient cutting({.max_response_bytes = 100'000, .cut_responses = true});
    const HttpOutcome cut = ask(cutting, {.url = server().url("/endless")});
    EXPECT_FALSE(cut.fault) << text_of(cut);
    EXPECT_TRUE(cut.cut);
    EXPECT_EQ(cut.status, 200);
    EXPECT_EQ(cut.body, std::string(100'000, 'x'));
    const HttpOutcome whole = ask(cutting, {.url = server().url("/echo")});
    EXPECT_FALSE(whole.cut);
}

TEST(HttpClient, WaitsForNoRestOfAnAnswer) {
    HttpClient client({.rest_time = 50ms});
    for (const char* what : {"headers", "body"}) {
        const HttpOutcome cut = ask(client, {.url = server().url(std::string("/half=") + what),
                                             .timeout = std::chrono::minutes(10)});
        EXPECT_FALSE(cut.fault) << text_of(cut);
        EXPECT_TRUE(cut.cut);
        EXPECT_EQ(cut.status, 200);
    }
    EXPECT_FALSE(ask(client, {.url = server().url("/echo")}).cut);
}

TEST(HttpClient, TakesNoHeadersWithoutEnd) {
    EXPECT_FAULT(ask({.url = server().url("/headers")}), Kind::kTooLarge);
    EXPECT_FAULT(ask({.url = server().url("/headers")}, {.cut_responses = true}), Kind::kTooLarge);
}

TEST(HttpClient, TellsAConnectionThatEndsFromAnAnswerThatIsNone) {
    EXPECT_FAULT(ask({.url = server().url("/drop")}), Kind::kEnded);
    EXPECT_FAULT(ask({.url = server().url("/nonsense")}), Kind::kProtocol);
}

TEST(HttpClient, RefusesWhatCannotBeSent) {
    const std::string url = server().url("/echo");
    EXPECT_FAULT(ask({.url = "file:///etc/passwd"}), Kind::kRequest);
    EXPECT_FAULT(ask({.url = "no URL at all"}), Kind::kRequest);
    EXPECT_FAULT(ask({.url = "http://user:s3cret@127.0.0.1:1/"}), Kind::kRequest);
    EXPECT_FAULT(ask({.method = "GET /x HTTP/1.1\r\nX: y", .url = url}), Kind::kRequest);
    EXPECT_FAULT(ask({.url = url, .headers = {{"X", "a\r\nY: b"}}}), Kind::kRequest);
    EXPECT_FAULT(ask({.url = url, .headers = {{"X: y", "a"}}}), Kind::kRequest);
    EXPECT_FAULT(ask({.url = url, .pinned_address = "localhost"}), Kind::kRequest);
    EXPECT_FAULT(ask({.url = url, .pinned_address = "127.0.0.1:80"}), Kind::kRequest);
}

TEST(HttpClient, ReadsNoProxyFromTheEnvironment) {
    ::setenv("http_proxy", "http://127.0.0.1:1", 1);
    ::setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    const HttpOutcome outcome = ask({.url = server().url("/echo")});
    ::unsetenv("http_proxy");
    ::unsetenv("ALL_PROXY");
    EXPECT_EQ(outcome.status, 200) << text_of(outcome);
}

TEST(HttpClient, AsksTheServerToProveItself) {
    const std::string url = tls_server().url("/echo", "localhost", "https");
    const HttpOutcome right = ask({.url = url}, trusting());
    EXPECT_EQ(right.status, 200) << text_of(right);
    EXPECT_FAULT(ask({.url = url}), Kind::kTls);
    EXPECT_FAULT(ask({.url = url}, {.ca_file = certificates().file("other.crt")}), Kind::kTls);
    EXPECT_FAULT(ask({.url = tls_server().url("/echo", "127.0.0.1", "https")}, trusting()),
                 Kind::kTls);
    EXPECT_FAULT(ask({.url = url}, {.ca_file = "/no/such/file"}), Kind::kSetting);
    EXPECT_EQ(ask({.url = url}, {.verify = false}).status, 200);
    EXPECT_FAULT(ask({.url = server().url("/echo", "localhost", "https")}, trusting()), Kind::kTls);
    const Server expired(certificates().file("expired.pem"));
    EXPECT_FAULT(ask({.url = expired.url("/echo", "localhost", "https")}, trusting()), Kind::kTls);
}

TEST(HttpClient, ConnectsToThePinnedAddressAndStaysWithTheNameOfTheUrl) {
    const std::string url = tls_server().url("/echo", "other.test", "https");
    HttpClient client(trusting());
    const HttpOutcome pinned = ask(client, {.url = url, .pinned_address = "127.0.0.1"});
    const auto seen = seen_by_server(pinned);
    EXPECT_EQ(pinned.peer, "127.0.0.1");
    EXPECT_EQ(seen["headers"][0][0], "Host");
    EXPECT_TRUE(seen["headers"][0][1].get<std::string>().starts_with("other.test:"));
    // Nor does the connection that it leaves serve another address, or none.
    EXPECT_FAULT(ask(client, {.url = url, .pinned_address = "127.0.0.9"}), Kind::kConnect);
    EXPECT_FAULT(ask(client, patient(url)), Kind::kResolve);
    // The certificate does not have this name.
    EXPECT_FAULT(ask(client, {.url = tls_server().url("/echo", "third.test", "https"),
                              .pinned_address = "127.0.0.1"}),
                 Kind::kTls);
}

TEST(HttpClient, SignsWhatItSends) {
    const auto seen = seen_by_server(ask({.method = "POST",
                                          .url = server().url("/echo"),
                                          .headers = {{"X-One", "1"}},
                                          .body = "{}",
                                          .sigv4 = SigV4{.region = "eu-central-1",
                                                         .service = "sqs",
                                                         .access_key = "AKID",
                                                         .secret_key = "s3cret"}}));
    std::map<std::string, std::string> headers;
    for (const auto& header : seen["headers"]) headers[header[0]] = header[1];
    EXPECT_NE(headers["Authorization"].find("SignedHeaders=host;x-amz-date;x-one,"),
              std::string::npos)
        << headers["Authorization"];
    EXPECT_EQ(headers["X-Amz-Date"].size(), 16U);
    EXPECT_EQ(seen.dump().find("s3cret"), std::string::npos);
}

TEST(HttpClient, WakesForADescriptor) {
    HttpClient client;
    client.start(1, {.url = server().url("/hang")});
    const int wake = ::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
    std::vector<HttpOutcome> out;
    client.poll(3600s, out, wake);
    EXPECT_TRUE(out.empty());
    HttpClient idle;
    idle.poll(3600s, out, wake);
    EXPECT_TRUE(out.empty());
    ::close(wake);
}

TEST(HttpClient, CanBeDestroyedWithRequestsUnderWay) {
    HttpClient client;
    for (std::uint64_t i = 0; i < 10; ++i) {
        client.start(i, {.url = server().url("/hang")});
        client.start(i, {.url = "http://no-such-host.invalid/"});
    }
    std::vector<HttpOutcome> out;
    client.poll(0ms, out);
}

TEST(HttpClient, AKeptConnectionThatWasClosedIsNoFault) {
    HttpClient client;
    for (int i = 0; i < 20; ++i) {
        const HttpOutcome outcome =
            ask(client, {.method = "POST", .url = server().url("/once"), .body = "text"});
        EXPECT_EQ(outcome.status, 200) << text_of(outcome);
    }
}

}  // namespace
}  // namespace outbox::net
