// Attempts over real HTTP to a receiver that is not ours (receiver.py), and what the guard keeps
// them from.
#include "webhook/http_sender.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <set>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base64.h"
#include "net/http_client.h"
#include "tests/support/certificates.h"
#include "tests/support/eventually.h"
#include "tests/webhook/receiver.h"
#include "webhook/sealed_secrets.h"
#include "webhook/signature.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using namespace webhook;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Kind = Verdict::Kind;

constexpr std::string_view kId = "01939d3e-7c00-7aaa-8000-000000000001";

Address address(std::string_view text) {
    return parse_address(text).value();
}

// A name server whose answers the test says, in their order; the last one stays.
struct Names {
    std::mutex mutex = {};
    std::vector<std::vector<Address>> answers;
    std::size_t asked = 0;
    Lookup lookup() {
        return [this](const std::string&, NoAddress&) {
            const std::lock_guard lock(mutex);
            return answers[std::min(asked++, answers.size() - 1)];
        };
    }
};

class HttpSenderTest : public testing::Test {
  protected:
    void SetUp() override {
        std::ofstream(key_file()) << base64_encode(std::string(32, 'k')) << '\n';
        std::filesystem::permissions(key_file(), std::filesystem::perms::owner_read);
    }
    std::string key_file() const { return (folder_ / "webhook.key").string(); }

    // For receivers of this machine, by their names and in clear.
    SenderConfig config() const {
        return {.key_file = key_file(),
                .allow = "127.0.0.1",
                .allow_http = true,
                .timeout = 60s,
                .connect_timeout = 60s};
    }
    // Of which an attempt that is not answered ends soon.
    SenderConfig hasty(std::chrono::milliseconds timeout) const {
        SenderConfig made = config();
        made.timeout = timeout;
        return made;
    }
    Sender& make(SenderConfig config) {
        auto made = make_http_sender(std::move(config));
        if (!made.ok()) throw std::runtime_error(made.error().message);
        sender_ = std::move(*made);
        return *sender_;
    }
    Endpoint endpoint(const std::string& url, const std::vector<Secret>& secrets) const {
        Endpoint one;
        one.id = "ep";
        one.url = url;
        const auto keys = KeyRing::read(key_file());
        one.secrets = keys->seal(one.id, secrets).value_or_throw();
        return one;
    }
    Endpoint endpoint(const std::string& url) const { return endpoint(url, {{secret_, 0}}); }
    static Delivery delivery(const std::string& payload = R"({"n": 1})") {
        Delivery one;
        one.endpoint_id = "ep";
        one.event_id = std::string(kId);
        one.event_type = "order.created";
        one.headers = R"({"type": "order.created", "webhook-id": "forged", "note": "a\nb: c"})";
        one.payload = payload;
        return one;
    }
    std::vector<Attempted> attempts(std::size_t count) {
        std::vector<Attempted> out;
        EXPECT_TRUE(eventually(60s, "attempts have ended", [&] {
            sender_->poll(100ms, -1, out);
            return out.size() >= count;
        }));
        return out;
    }
    Attempted attempt(const Endpoint& to, const Delivery& what = delivery()) {
        sender_->start(1, to, what);
        const auto ended = attempts(1);
        return ended.empty() ? Attempted{} : ended[0];
    }
    // Where it gets no time to connect in time that is our fault, and says nothing.
    Attempted attempt_that_connects(const Endpoint& to) {
        Attempted ended;
        EXPECT_TRUE(eventually(60s, "an attempt has a connection in time", [&] {
            ended = attempt(to);
            return ended.verdict.kind != Kind::kOwnFault;
        })) << ended.verdict.text;
        return ended;
    }
    static std::string url_of(const Receiver& receiver, const std::string& path = "/hook") {
        return "http://127.0.0.1:" + std::to_string(receiver.port()) + path;
    }

    TemporaryFolder folder_{"sender"};
    const std::string secret_ = make_secret(SecretType::kV1).value_or_throw();
    std::unique_ptr<Sender> sender_;
};

std::string public_key(const std::string& secret) {
    return Signer::make(secret)->public_key();
}

std::string header(const json& request, const std::string& name) {
    const auto found = request["headers"].find(name);
    return found == request["headers"].end() || found->size() != 1 ? "" : found->at(0);
}

TEST_F(HttpSenderTest, TheReferenceLibraryVerifiesWhatIsSent) {
    const Receiver receiver({.keys = {secret_, make_secret(SecretType::kV1).value_or_throw()}});
    make(config());
    const Attempted ended = attempt(endpoint(url_of(receiver)));
    EXPECT_EQ(ended.verdict.kind, Kind::kDone) << ended.verdict.text;
    EXPECT_EQ(ended.status, 200);
    const json request = receiver.wait_for(1).at(0);
    EXPECT_EQ(request["signed_with"], json({true, false}));
    EXPECT_EQ(request["method"], "POST");
    EXPECT_EQ(base64_decode(request["body"].get<std::string>()), R"({"n": 1})");
    EXPECT_EQ(header(request, "webhook-id"), kId);
    EXPECT_EQ(header(request, "content-type"), "application/json");
    EXPECT_EQ(header(request, "user-agent"), "outbox");
    EXPECT_EQ(header(request, "type"), "order.created");
    EXPECT_EQ(header(request, "note*"), "UTF-8''a%0Ab%3A%20c");
}

TEST_F(HttpSenderTest, AnEd25519SignatureIsVerifiedByThePublicKeyAlone) {
    const std::string secret = make_secret(SecretType::kV1a).value_or_throw();
    const std::string other = make_secret(SecretType::kV1a).value_or_throw();
    const Receiver receiver({.keys = {public_key(secret), public_key(other)}});
    make(config());
    EXPECT_EQ(attempt(endpoint(url_of(receiver), {{secret, 0}})).verdict.kind, Kind::kDone);
    EXPECT_EQ(receiver.wait_for(1).at(0)["signed_with"], json({true, false}));
}

TEST_F(HttpSenderTest, WhileASecretIsChangedBothSignAndTheFormerOneOnlyUntilItsTime) {
    const std::string fresh = make_secret(SecretType::kV1a).value_or_throw();
    const std::string expired = make_secret(SecretType::kV1).value_or_throw();
    const Receiver receiver({.keys = {public_key(fresh), secret_, expired}});
    make(config());
    constexpr std::int64_t kFarAway = 4'000'000'000;
    EXPECT_EQ(attempt(endpoint(url_of(receiver), {{fresh, 0}, {secret_, kFarAway}, {expired, 1}}))
                  .verdict.kind,
              Kind::kDone);
    EXPECT_EQ(attempt(endpoint(url_of(receiver), {{fresh, 0}, {secret_, 1}})).verdict.kind,
              Kind::kDone);
    const auto requests = receiver.wait_for(2);
    EXPECT_EQ(requests.at(0)["signed_with"], json({true, true, false}));
    EXPECT_EQ(requests.at(1)["signed_with"], json({true, false, false}));
}

TEST_F(HttpSenderTest, EachAnswerMeansWhatItSays) {
    const Receiver receiver({});
    make(config());
    const auto answer = [&](const std::string& path) {
        return attempt(endpoint(url_of(receiver, path)));
    };
    EXPECT_EQ(answer("/status/204").verdict.kind, Kind::kDone);
    EXPECT_EQ(answer("/status/410").verdict.kind, Kind::kGone);
    EXPECT_EQ(answer("/status/404").verdict.kind, Kind::kRefused);
    EXPECT_EQ(answer("/status/500").status, 500);
    const Attempted busy = answer("/status/429/after/7");
    EXPECT_EQ(busy.verdict.kind, Kind::kBusy);
    EXPECT_EQ(busy.verdict.wait, 7s);
    EXPECT_EQ(answer("/status/503/after/never").verdict.wait, std::nullopt);
    // Its word is given with the status, whatever breaks, or goes on for ever, behind it.
    EXPECT_EQ(answer("/break").verdict.kind, Kind::kDone);
    EXPECT_EQ(answer("/endless").verdict.kind, Kind::kDone);
}

TEST_F(HttpSenderTest, AnInterimAnswerIsNone) {
    const Receiver receiver({});
    make(config());
    const auto to = [&](const std::string& path) { return endpoint(url_of(receiver, path)); };
    EXPECT_EQ(attempt(to("/early/103")).verdict.kind, Kind::kDone);
    EXPECT_EQ(attempt(to("/early/100/status/204")).verdict.kind, Kind::kDone);
    EXPECT_EQ(attempt(to("/early/102/status/404")).status, 404);
    const auto expect_none = [&](const std::string& path, const Attempted& ended) {
        EXPECT_EQ(ended.verdict.kind, Kind::kDown) << path;
        EXPECT_EQ(ended.status, 0) << path << ' ' << ended.verdict.text;
        EXPECT_EQ(ended.verdict.wait, std::nullopt) << path;
    };
    expect_none("/early/103/end", attempt(to("/early/103/end")));
    make(hasty(1s));
    for (const char* path : {"/early/103/hang", "/early/100/hang"}) {
        expect_none(path, attempt_that_connects(to(path)));
    }
}

// As many as a dispatcher begins have a connection each, also behind one address.
TEST_F(HttpSenderTest, WhoHangsKeepsNoConnectionFromOthersOfItsAddress) {
    const Receiver receiver({});
    SenderConfig many = config();
    many.max_connections = 60;
    make(many);
    for (std::uint64_t i = 100; i < 159; ++i) {
        sender_->start(i, endpoint(url_of(receiver, "/hang")), delivery());
    }
    EXPECT_EQ(attempt(endpoint(url_of(receiver))).verdict.kind, Kind::kDone);
}

TEST_F(HttpSenderTest, WhoWaitedInVainForAConnectionIsNotAtFault) {
    const Receiver receiver({});
    SenderConfig few = hasty(1s);
    few.max_connections = 1;
    make(few);
    std::set<Kind> kinds;
    // Unless the first has no time to connect, or the second begins late and has the first's.
    EXPECT_TRUE(eventually(60s, "one has the connection and the other none", [&] {
        sender_->start(1, endpoint(url_of(receiver, "/hang")), delivery());
        sender_->start(2, endpoint(url_of(receiver, "/hang")), delivery());
        kinds.clear();
        for (const Attempted& ended : attempts(2)) kinds.insert(ended.verdict.kind);
        return kinds == std::set<Kind>{Kind::kDown, Kind::kOwnFault};
    })) << testing::PrintToString(kinds.size());
}

// Port 9 of an address for documentation: nobody answers, and nothing is refused.
TEST_F(HttpSenderTest, WhoDoesNotAnswerAtAllIsAtFaultThough) {
    SenderConfig to_anybody = hasty(1s);
    to_anybody.allow = "192.0.2.0/24";
    make(to_anybody);
    EXPECT_EQ(attempt_that_connects(endpoint("http://192.0.2.9:9/")).verdict.kind, Kind::kDown);
}

TEST_F(HttpSenderTest, ANameServerThatAnswersNobodyIsNoEndpointsFault) {
    const Receiver receiver({});
    SenderConfig looking = config();
    looking.allow = "127.0.0.0/8";
    auto whose = std::make_shared<NoAddress::Whose>(NoAddress::Whose::kNobody);
    looking.lookup = [whose](const std::string& host, NoAddress& no) {
        if (host == "well.example") return std::vector<Address>{address("127.0.0.1")};
        no = {*whose, host + " is not found"};
        return std::vector<Address>();
    };
    make(looking);
    const auto to = [&](const std::string& host) {
        return attempt(endpoint("http://" + host + ":" + std::to_string(receiver.port()) + "/"))
            .verdict.kind;
    };
    EXPECT_EQ(to("silent.example"), Kind::kOwnFault);
    EXPECT_EQ(to("well.example"), Kind::kDone);
    EXPECT_EQ(to("silent.example"), Kind::kDown) << "it answers others";
    *whose = NoAddress::Whose::kOurs;
    EXPECT_EQ(to("silent.example"), Kind::kOwnFault);
    *whose = NoAddress::Whose::kHost;
    EXPECT_EQ(to("silent.example"), Kind::kDown);
}

TEST_F(HttpSenderTest, ARedirectIsNotFollowed) {
    const Receiver inside({});
    const Receiver receiver({});
    make(config());
    const std::string target = "http%3A%2F%2F127.0.0.1%3A" + std::to_string(inside.port()) + "%2F";
    const Attempted ended = attempt(endpoint(url_of(receiver, "/redirect/" + target)));
    EXPECT_EQ(ended.verdict.kind, Kind::kRefused);
    EXPECT_THAT(ended.verdict.text, HasSubstr("redirects are not followed"));
    EXPECT_EQ(receiver.wait_for(1).size(), 1U);
    EXPECT_TRUE(inside.requests().empty());
}

TEST_F(HttpSenderTest, WhatLiesInsideIsReachedOnlyWhereItIsAllowedByName) {
    const Receiver receiver({});
    Names names{.answers = {{address("127.0.0.1"), address("::1")}}};
    SenderConfig guarded = config();
    guarded.lookup = names.lookup();
    guarded.allow = "hooks.internal";
    make(guarded);
    const std::string port = std::to_string(receiver.port());
    const Attempted refused = attempt(endpoint("http://customer.example:" + port + "/"));
    EXPECT_EQ(refused.verdict.kind, Kind::kDown);
    EXPECT_EQ(refused.status, 0);
    EXPECT_THAT(refused.verdict.text, AllOf(StartsWith("customer.example resolves to "),
                                            HasSubstr("a loopback address")));
    EXPECT_THAT(attempt(endpoint("http://127.0.0.1:" + port + "/")).verdict.text,
                HasSubstr("127.0.0.1 is a loopback address"));
    EXPECT_THAT(attempt(endpoint("http://[::ffff:127.0.0.1]:" + port + "/")).verdict.text,
                HasSubstr("a loopback address"));
    EXPECT_TRUE(receiver.requests().empty());
    EXPECT_EQ(attempt(endpoint("http://hooks.internal:" + port + "/")).verdict.kind, Kind::kDone);
    EXPECT_EQ(header(receiver.wait_for(1).at(0), "host"), "hooks.internal:" + port);
}

TEST_F(HttpSenderTest, ANameThatTheSystemKnowsInsideIsRefused) {
    const Receiver receiver({});
    SenderConfig guarded = config();
    guarded.allow = "";
    make(guarded);
    const std::string url = "http://localhost:" + std::to_string(receiver.port()) + "/";
    EXPECT_THAT(attempt(endpoint(url)).verdict.text, HasSubstr("a loopback address"));
    guarded.allow = "localhost";
    make(guarded);
    const Endpoint local = endpoint(url);
    // Where it is ::1, too, nobody listens there; then the next one is tried.
    if (attempt(local).verdict.kind != Kind::kDone) {
        EXPECT_EQ(attempt(local).verdict.kind, Kind::kDone);
    }
    EXPECT_EQ(receiver.requests().size(), 1U);
}

// 127.0.0.2 stands for an address that is allowed, 127.0.0.1 for the victim; curl by itself would
// take localhost for the latter.
TEST_F(HttpSenderTest, TheAddressThatWasJudgedIsTheOneThatIsConnected) {
    const Receiver victim({});
    const Receiver receiver({.host = "127.0.0.2", .port = victim.port()});
    Names names{.answers = {{address("127.0.0.2")}, {address("127.0.0.1")}}};
    SenderConfig guarded = config();
    guarded.lookup = names.lookup();
    guarded.allow = "127.0.0.2";
    make(guarded);
    const std::string url = "http://localhost:" + std::to_string(victim.port()) + "/";
    EXPECT_EQ(attempt(endpoint(url)).verdict.kind, Kind::kDone);
    EXPECT_EQ(names.asked, 1U);
    EXPECT_EQ(receiver.wait_for(1).size(), 1U);
    const Attempted rebound = attempt(endpoint(url));
    EXPECT_EQ(rebound.verdict.kind, Kind::kDown);
    EXPECT_THAT(rebound.verdict.text, HasSubstr("127.0.0.1, a loopback address"));
    EXPECT_EQ(names.asked, 2U);
    EXPECT_TRUE(victim.requests().empty());
}

TEST_F(HttpSenderTest, AnotherAddressOfTheHostIsTriedAfterAFault) {
    const Receiver receiver({});
    Names names{.answers = {{address("127.0.0.3"), address("127.0.0.1"), address("10.0.0.1")}}};
    SenderConfig guarded = config();
    guarded.lookup = names.lookup();
    guarded.allow = "127.0.0.0/8";
    make(guarded);
    const Endpoint to = endpoint("http://hooks.example:" + std::to_string(receiver.port()) + "/");
    EXPECT_EQ(attempt(to).verdict.kind, Kind::kDown);
    EXPECT_EQ(attempt(to).verdict.kind, Kind::kDone);
    EXPECT_EQ(attempt(to).verdict.kind, Kind::kDone);
}

class HttpSenderTls : public HttpSenderTest {
  protected:
    SenderConfig config() {
        SenderConfig secured = HttpSenderTest::config();
        secured.lookup = names_.lookup();
        secured.allow = "hooks.example";
        secured.allow_http = false;
        secured.ca_file = certificates_.file("ca.crt");
        return secured;
    }
    Attempted attempt_at(const Receiver& receiver) {
        return attempt(endpoint("https://hooks.example:" + std::to_string(receiver.port()) + "/"));
    }
    Certificates certificates_;
    Names names_{.answers = {{address("127.0.0.1")}}};
};

TEST_F(HttpSenderTls, TheCertificateIsThatOfTheNameAndNotOfTheAddress) {
    certificates_.sign("server", "hooks.example", "subjectAltName=DNS:hooks.example");
    const Receiver receiver({.keys = {secret_}, .tls = certificates_.file("server.pem")});
    make(config());
    EXPECT_EQ(attempt_at(receiver).verdict.kind, Kind::kDone);
    EXPECT_EQ(receiver.wait_for(1).at(0)["signed_with"], json({true}));
}

TEST_F(HttpSenderTls, ManyAtOnceShareAConnectionOfHttp2) {
    constexpr std::size_t kAtOnce = 60;
    certificates_.sign("server", "hooks.example", "subjectAltName=DNS:hooks.example");
    const Receiver receiver(
        {.keys = {secret_}, .tls = certificates_.file("server.pem"), .http2 = true});
    make(config());
    const auto to = [&](const std::string& path) {
        return endpoint("https://hooks.example:" + std::to_string(receiver.port()) + path);
    };
    ASSERT_EQ(attempt(to("/first")).verdict.kind, Kind::kDone);
    // None of these is answered before all are there, and no host has so many connections.
    const Endpoint together = to("/together/" + std::to_string(kAtOnce));
    for (std::size_t i = 0; i < kAtOnce; ++i) sender_->start(i, together, delivery());
    const auto ended = attempts(kAtOnce);
    ASSERT_EQ(ended.size(), kAtOnce);
    for (const Attempted& one : ended) EXPECT_EQ(one.verdict.kind, Kind::kDone) << one.verdict.text;
    std::set<int> connections;
    for (const json& request : receiver.wait_for(kAtOnce + 1)) {
        EXPECT_EQ(request["http_version"], "2");
        EXPECT_EQ(request["signed_with"], json({true}));
        EXPECT_EQ(header(request, "webhook-id"), kId);
        connections.insert(request["connection"].get<int>());
    }
    EXPECT_EQ(connections.size(), 1U);
}

TEST_F(HttpSenderTls, AFileOfAuthoritiesIsCheckedAsAWhole) {
    certificates_.make_ca("second");
    const auto check = [&](const std::string& behind) {
        SenderConfig both = config();
        both.ca_file = (folder_ / "both.pem").string();
        std::ofstream(both.ca_file) << read_file(certificates_.file("ca.crt")) << behind;
        return check_sender(both, {});
    };
    const std::string second = read_file(certificates_.file("second.crt"));
    EXPECT_TRUE(check(second).ok());
    std::string broken = second;
    broken.replace(broken.find('\n') + 8, 4, "AAAA");
    for (const std::string& behind : {broken, second.substr(0, second.size() / 2)}) {
        const Status checked = check(behind);
        ASSERT_FALSE(checked.ok());
        EXPECT_THAT(checked.error().message, HasSubstr("both.pem"));
    }
}

// Two names of one address and port; behind one of them the handshake never ends.
TEST_F(HttpSenderTls, AHandshakeThatHangsHoldsNoOtherName) {
    certificates_.sign("server", "hooks.example", "subjectAltName=DNS:hooks.example");
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ASSERT_EQ(::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    sockaddr_in there{};
    there.sin_family = AF_INET;
    there.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    const int port = free_port();
    there.sin_port = ::htons(static_cast<std::uint16_t>(port));
    ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&there), sizeof there), 0);
    ASSERT_EQ(::listen(listener, 1), 0);
    SenderConfig patient = config();
    patient.allow = "hangs.example,hooks.example";
    make(patient);
    const auto to = [&](const std::string& name) {
        return endpoint("https://" + name + ":" + std::to_string(port) + "/");
    };
    sender_->start(1, to("hangs.example"), delivery());
    std::vector<Attempted> out;
    pollfd connected{listener, POLLIN, 0};
    ASSERT_TRUE(eventually(60s, "it is connected", [&] {
        sender_->poll(10ms, -1, out);
        return ::poll(&connected, 1, 0) == 1;
    }));
    const int hangs = ::accept(listener, nullptr, nullptr);
    ASSERT_GE(hangs, 0);
    ::close(listener);
    const Receiver receiver({.tls = certificates_.file("server.pem"), .port = port, .http2 = true});
    sender_->start(2, to("hooks.example"), delivery());
    const auto ended = attempts(1);
    ::close(hangs);
    ASSERT_EQ(ended.size(), 1U);
    EXPECT_EQ(ended[0].token, 2U);
    EXPECT_EQ(ended[0].verdict.kind, Kind::kDone) << ended[0].verdict.text;
}

TEST_F(HttpSenderTls, AnotherCertificateGetsNothing) {
    certificates_.sign("other", "other.example", "subjectAltName=DNS:other.example,IP:127.0.0.1");
    certificates_.sign("late", "hooks.example", "subjectAltName=DNS:hooks.example", -1);
    certificates_.sign("server", "hooks.example", "subjectAltName=DNS:hooks.example");
    certificates_.make_ca("stranger");
    make(config());
    for (const char* name : {"other.pem", "late.pem"}) {
        const Receiver receiver({.tls = certificates_.file(name)});
        const Attempted ended = attempt_at(receiver);
        EXPECT_EQ(ended.verdict.kind, Kind::kDown) << name;
        EXPECT_THAT(ended.verdict.text, StartsWith("TLS: ")) << name;
        EXPECT_TRUE(receiver.requests().empty()) << name;
    }
    const Receiver receiver({.tls = certificates_.file("server.pem")});
    SenderConfig trusting = config();
    trusting.ca_file = certificates_.file("stranger.crt");
    make(trusting);
    EXPECT_THAT(attempt_at(receiver).verdict.text, StartsWith("TLS: "));
    EXPECT_TRUE(receiver.requests().empty());
}

TEST_F(HttpSenderTest, NobodyWaitsForAReceiverOrANameServerThatHangs) {
    const Receiver receiver({});
    // Shared with a lookup that outlives the sender.
    const auto gate = std::make_shared<std::timed_mutex>();
    std::unique_lock closed(*gate);
    SenderConfig patient = config();
    patient.lookup = [gate](const std::string&, NoAddress& no) {
        const std::unique_lock open(*gate);
        no.why = "late";
        return std::vector<Address>();
    };
    make(patient);
    sender_->start(1, endpoint("http://silent.example/"), delivery());
    sender_->start(2, endpoint(url_of(receiver, "/hang")), delivery());
    sender_->start(3, endpoint(url_of(receiver)), delivery());
    const auto ended = attempts(1);
    ASSERT_EQ(ended.size(), 1U);
    EXPECT_EQ(ended[0].token, 3U);
    sender_->cancel(2);
    closed.unlock();
    const auto late = attempts(1);
    ASSERT_EQ(late.size(), 1U);
    EXPECT_EQ(late[0].token, 1U);
    EXPECT_EQ(late[0].verdict.text, "late");
}

TEST_F(HttpSenderTest, AnAttemptEndsAtItsTime) {
    const Receiver receiver({});
    make(hasty(300ms));
    const Attempted ended = attempt_that_connects(endpoint(url_of(receiver, "/hang")));
    EXPECT_EQ(ended.verdict.kind, Kind::kDown);
    EXPECT_THAT(ended.verdict.text, StartsWith("TIMEOUT: "));
}

TEST_F(HttpSenderTest, WhoWaitsIsWokenAndWhatIsCancelledHasNoOutcome) {
    const Receiver receiver({});
    make(config());
    sender_->start(1, endpoint(url_of(receiver, "/hang")), delivery());
    sender_->start(2, endpoint("ftp://nowhere"), delivery());
    sender_->cancel(2);
    const int wake = ::eventfd(1, EFD_CLOEXEC);
    std::vector<Attempted> out;
    sender_->poll(std::chrono::hours(1), wake, out);
    EXPECT_TRUE(out.empty());
    sender_->cancel(1);
    sender_->poll(0ms, wake, out);
    EXPECT_TRUE(out.empty());
    ::close(wake);
}

TEST_F(HttpSenderTest, WhatCannotBeOpenedOrAskedForIsSaidAndNotSent) {
    const Receiver receiver({});
    make(config());
    Endpoint moved = endpoint(url_of(receiver));
    moved.id = "other";
    EXPECT_THAT(attempt(moved).verdict.text, HasSubstr("another endpoint's"));
    Endpoint altered = endpoint(url_of(receiver));
    altered.secrets.back() = altered.secrets.back() == 'A' ? 'B' : 'A';
    EXPECT_EQ(attempt(altered).verdict.kind, Kind::kOwnFault);
    EXPECT_THAT(attempt(endpoint(url_of(receiver), {{secret_, 1}})).verdict.text,
                HasSubstr("no secret that is in force"));
    const Attempted clear = [&] {
        SenderConfig strict = config();
        strict.allow_http = false;
        make(strict);
        return attempt(endpoint(url_of(receiver)));
    }();
    EXPECT_THAT(clear.verdict.text, HasSubstr("write https://"));
    std::filesystem::permissions(key_file(), std::filesystem::perms::owner_all);
    std::ofstream(key_file(), std::ios::trunc) << base64_encode(std::string(32, 'x')) << '\n';
    const Endpoint stored = moved;
    make(config());
    const Attempted wrong_key = attempt(stored);
    EXPECT_THAT(wrong_key.verdict.text,
                AllOf(HasSubstr("is not in the key file"), Not(HasSubstr(secret_))));
    EXPECT_EQ(wrong_key.verdict.kind, Kind::kOwnFault);
    EXPECT_TRUE(receiver.requests().empty());
    SenderConfig missing = config();
    missing.key_file = "/nowhere/webhook.key";
    EXPECT_THAT(make_http_sender(missing).error().message, HasSubstr("/nowhere/webhook.key"));
    SenderConfig wide = config();
    wide.allow = "0.0.0.0/0";
    EXPECT_FALSE(make_http_sender(wide).ok());
}

TEST_F(HttpSenderTest, AKeyThatWasAddedToTheFileIsReadWhenASecretNamesIt) {
    const Receiver receiver({});
    make(config());
    const std::string url = "http://127.0.0.1:" + std::to_string(receiver.port());
    const std::string before = base64_encode(std::string(32, 'k')) + '\n';
    const auto write = [&](const std::string& text) {
        std::filesystem::remove(key_file());
        std::ofstream(key_file()) << text;
        std::filesystem::permissions(key_file(), std::filesystem::perms::owner_read);
    };
    write(base64_encode(std::string(32, 'n')) + '\n' + before);
    const Endpoint added = endpoint(url);
    EXPECT_EQ(attempt(added).status, 200);
    // One that is in no file is the operator's to mend, and needs no new start then.
    write(base64_encode(std::string(32, 'o')) + '\n' + before);
    const Endpoint other = endpoint(url);
    write(before);
    const Attempted failed = attempt(other);
    EXPECT_EQ(failed.status, 0);
    EXPECT_THAT(failed.verdict.text, HasSubstr("is not in the key file"));
    EXPECT_EQ(attempt(added).status, 200) << "it is known from before";
    write(base64_encode(std::string(32, 'o')) + '\n' + before);
    EXPECT_TRUE(eventually(60s, "it is found", [&] { return attempt(other).status == 200; }));
}

}  // namespace
}  // namespace outbox::test
