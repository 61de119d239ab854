#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdexcept>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "admin/listener.h"
#include "admin/pages.h"
#include "admin/server.h"

namespace outbox::admin {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::chrono::seconds kPatience{60};

// A TCP connection to the loopback interface; reads give up after a minute.
class Connection {
  public:
    explicit Connection(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
        const timeval limit{kPatience.count(), 0};
        setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
            throw std::runtime_error("cannot connect");
        }
    }
    ~Connection() { close(socket_); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void send(const std::string& text) const {
        EXPECT_GE(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL), 0);
    }
    // Everything until the server closes.
    [[nodiscard]] std::string read_all() const {
        std::string text;
        char bytes[4096];
        for (ssize_t count = 0; (count = recv(socket_, bytes, sizeof(bytes), 0)) > 0;) {
            text.append(bytes, static_cast<std::size_t>(count));
        }
        return text;
    }
    // Whether the server closes it, without a word.
    [[nodiscard]] bool is_closed() const {
        char byte = 0;
        return recv(socket_, &byte, 1, 0) == 0;
    }
    // Until `mark` has come.
    [[nodiscard]] std::string read_until(const std::string& mark) const {
        std::string text;
        char byte = 0;
        while (text.find(mark) == std::string::npos && recv(socket_, &byte, 1, 0) == 1) {
            text += byte;
        }
        return text;
    }

  private:
    int socket_;
};

class AdminServerTest : public testing::Test {
  protected:
    void SetUp() override {
        auto started = AdminServer::start(
            "127.0.0.1", 0,
            {{"/metrics", [] { return HttpResponse{200, "text/plain", "figures\n"}; }},
             {"/broken", []() -> HttpResponse { throw std::runtime_error("secret"); }}},
            kPatience);
        ASSERT_TRUE(started.ok()) << started.error().message;
        server_ = std::move(*started);
    }

    std::string exchange(const std::string& request) {
        const Connection connection(server_->port());
        connection.send(request);
        return connection.read_all();
    }
    std::string get(const std::string& path, const std::string& host = "localhost",
                    const std::string& method = "GET") {
        return exchange(method + " " + path + " HTTP/1.1\r\nHost: " + host +
                        "\r\nConnection: close\r\n\r\n");
    }

    std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, ServesItsPagesAndNamesThemWhereThereIsNone) {
    EXPECT_THAT(get("/metrics"), HasSubstr("200 OK"));
    EXPECT_THAT(get("/metrics?x=y"), HasSubstr("figures\n"));
    EXPECT_THAT(get("/other"), HasSubstr("404 Not Found"));
    EXPECT_THAT(get("/other"), HasSubstr("/metrics"));
}

TEST_F(AdminServerTest, AnswersHeadWithoutABodyAndRefusesOtherMethods) {
    EXPECT_THAT(get("/metrics", "localhost", "HEAD"), HasSubstr("Content-Length: 8"));
    EXPECT_THAT(get("/metrics", "localhost", "HEAD"), Not(HasSubstr("figures")));
    EXPECT_THAT(get("/metrics", "localhost", "POST"), HasSubstr("405 Method"));
}

TEST_F(AdminServerTest, RefusesForeignHostNames) {
    EXPECT_THAT(get("/metrics", "evil.example"), HasSubstr("403 Forbidden"));
    EXPECT_THAT(get("/metrics", "localhost.evil.example:9464"), HasSubstr("403 Forbidden"));
    EXPECT_THAT(get("/metrics", ""), HasSubstr("403 Forbidden"));
    EXPECT_THAT(get("/metrics", "127.0.0.1:9464"), HasSubstr("200 OK"));
    EXPECT_THAT(get("/metrics", "[::1]:9464"), HasSubstr("200 OK"));
    EXPECT_THAT(get("/metrics", "LOCALHOST:1"), HasSubstr("200 OK"));
}

TEST_F(AdminServerTest, LimitsHeadersAndBodies) {
    EXPECT_THAT(exchange("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " +
                         std::string(2 * kMaxHeaderBytes, 'x')),
                HasSubstr("431"));
    EXPECT_THAT(exchange("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n"
                         "\r\n"),
                HasSubstr("413"));
    EXPECT_THAT(exchange("no http at all\r\n\r\n"), HasSubstr("400 Bad Request"));
}

TEST_F(AdminServerTest, HidesWhyAPageFailed) {
    EXPECT_THAT(get("/broken"), HasSubstr("500"));
    EXPECT_THAT(get("/broken"), Not(HasSubstr("secret")));
}

TEST_F(AdminServerTest, KeepsAConnectionForSeveralRequests) {
    const Connection connection(server_->port());
    for (int i = 0; i < 3; ++i) {
        connection.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        EXPECT_THAT(connection.read_until("figures\n"), HasSubstr("200 OK"));
    }
}

TEST_F(AdminServerTest, AnswersWhateverElseIsConnected) {
    std::vector<std::unique_ptr<Connection>> idle;
    for (std::size_t i = 0; i < kMaxConnections; ++i) {
        idle.push_back(std::make_unique<Connection>(server_->port()));
    }
    // Kept open between its requests it is not idle for long.
    const Connection probe(server_->port());
    for (int i = 0; i < 3; ++i) {
        probe.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        EXPECT_THAT(probe.read_until("figures\n"), HasSubstr("200 OK"));
        for (std::size_t more = 0; more < kMaxConnections / 2; ++more) {
            idle.push_back(std::make_unique<Connection>(server_->port()));
        }
    }
    EXPECT_THAT(get("/metrics"), HasSubstr("200 OK"));
    EXPECT_TRUE(idle.front()->is_closed());
}

TEST(AdminServerWithoutPatience, ClosesAConnectionThatBringsNoRequestInTime) {
    const auto server = AdminServer::start("127.0.0.1", 0, {}, std::chrono::seconds(1));
    ASSERT_TRUE(server.ok()) << server.error().message;
    EXPECT_TRUE(Connection((*server)->port()).is_closed());
}

TEST_F(AdminServerTest, RefusesABodyWhoseEndIsNotCertain) {
    for (const char* encoding :
         {"chunked, identity", "gzip", "xchunked", "identity", "chunked\r\nTransfer-Encoding: x",
          "chunked\r\nContent-Length: 5"}) {
        const std::string answers = exchange(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " +
            std::string(encoding) + "\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        EXPECT_THAT(answers, HasSubstr("400 Bad Request")) << encoding;
        EXPECT_THAT(answers, Not(HasSubstr("figures"))) << encoding;
    }
    EXPECT_THAT(exchange("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n"),
                HasSubstr("figures"));
}

TEST_F(AdminServerTest, RefusesARequestWithTwoHosts) {
    const std::string answer = exchange(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n"
        "Connection: close\r\n\r\n");
    EXPECT_THAT(answer, HasSubstr("400 Bad Request"));
    EXPECT_THAT(answer, Not(HasSubstr("figures")));
}

TEST_F(AdminServerTest, RefusesAnAddressThatIsInUse) {
    const auto second = AdminServer::start("127.0.0.1", server_->port(), {});
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, ErrorCode::kConfigInvalid);
    EXPECT_THAT(second.error().message, HasSubstr("another program uses this port"));
    EXPECT_FALSE(AdminServer::start("no.such.host.invalid", 1, {}).ok());
    EXPECT_FALSE(AdminServer::start("192.0.2.1", 0, {}).ok());
}

TEST(AdminServerOnAListener, WhoConnectsBetweenTwoServersIsAnsweredByTheSecond) {
    const auto listener = Listener::open("127.0.0.1", 0);
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    const auto serve = [&](const std::string& text) {
        return AdminServer::start(**listener,
                                  {{"/", [text] { return HttpResponse{200, "text/plain", text}; }}},
                                  kPatience, {});
    };
    auto first = serve("first");
    ASSERT_TRUE(first.ok()) << first.error().message;
    const std::uint16_t port = (*first)->port();
    first->reset();
    EXPECT_FALSE(Listener::open("127.0.0.1", port).ok());
    const Connection connection(port);
    connection.send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const auto second = serve("second");
    ASSERT_TRUE(second.ok()) << second.error().message;
    EXPECT_THAT(connection.read_all(), HasSubstr("second"));
}

// A site that answers when it is told to.
class AdminServerWithASite : public testing::Test {
  protected:
    void SetUp() override {
        auto started = AdminServer::start(
            "127.0.0.1", 0,
            {{"/metrics", [] { return HttpResponse{200, "text/plain", "figures\n"}; }}}, kPatience,
            {.at_once = [this](const HttpRequest& request,
                               std::chrono::milliseconds busy) -> std::optional<HttpResponse> {
                 if (request.path == "/file") return HttpResponse{200, "text/plain", "a file"};
                 if (request.path == "/in_vain" && ++looked_ > 1) {
                     return HttpResponse{503, "text/plain", "in vain"};
                 }
                 if (request.path != "/busy") return std::nullopt;
                 return HttpResponse{200, "text/plain", busy.count() > 0 ? "busy" : "idle"};
             },
             .ask = [this](const HttpRequest& request) { return answer(request); }});
        ASSERT_TRUE(started.ok()) << started.error().message;
        server_ = std::move(*started);
    }
    HttpResponse answer(const HttpRequest& request) {
        ++asked_;
        if (request.path == "/broken") throw std::runtime_error("secret");
        if (request.path == "/slow") {
            began_.set_value();
            go_on_.get_future().wait();
        }
        return {200,
                "text/plain",
                request.method + " " + request.path + " " + request.query + " " + request.host +
                    " " + request.body,
                {{"X-More", "yes"}}};
    }
    std::string get(const std::string& path) {
        return exchange("GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
    // A request that is at work until it is told to go on.
    std::unique_ptr<Connection> begin_slow() {
        auto slow = std::make_unique<Connection>(server_->port());
        slow->send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        began_.get_future().wait();
        return slow;
    }
    std::string exchange(const std::string& request) {
        const Connection connection(server_->port());
        connection.send(request);
        return connection.read_all();
    }

    std::atomic<std::size_t> asked_{0};
    std::atomic<std::size_t> looked_{0};
    std::promise<void> began_;
    std::promise<void> go_on_;
    std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerWithASite, HandsItWhatIsNoPageWholeAndWithAnyHost) {
    const std::string answer = exchange(
        "POST /act?a=b HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 4\r\nConnection: "
        "close\r\n\r\nbody");
    EXPECT_THAT(answer, HasSubstr("POST /act a=b evil.example body"));
    EXPECT_THAT(answer, HasSubstr("X-More: yes"));
    EXPECT_THAT(exchange("HEAD /act HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
                Not(HasSubstr("GET /act")));
    EXPECT_THAT(exchange("GET /broken HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
                testing::AllOf(HasSubstr("500"), Not(HasSubstr("secret"))));
    EXPECT_THAT(
        exchange("GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
        HasSubstr("403 Forbidden"));
    EXPECT_THAT(exchange("POST /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
                HasSubstr("405"));
}

TEST_F(AdminServerWithASite, ServesPagesWhileItBlocksAndForgetsWhoWasCutOff) {
    auto slow = std::make_unique<Connection>(server_->port());
    slow->send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    began_.get_future().wait();
    std::vector<std::unique_ptr<Connection>> waiting;
    for (std::size_t i = 0; i < 2 * kMaxConnections; ++i) {
        waiting.push_back(std::make_unique<Connection>(server_->port()));
        waiting.back()->send("GET /act HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
    EXPECT_THAT(exchange("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
                HasSubstr("figures"));
    EXPECT_TRUE(slow->is_closed());  // it waited longest
    go_on_.set_value();
    EXPECT_THAT(waiting.back()->read_all(), HasSubstr("GET /act"));
    EXPECT_LE(asked_, kMaxConnections + 1) << "what nobody waits for is not looked up";
}

TEST_F(AdminServerWithASite, EndsWithRequestsThatWait) {
    const Connection slow(server_->port());
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    began_.get_future().wait();
    const Connection behind(server_->port());
    behind.send("GET /act HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread ending([this] { server_.reset(); });
    go_on_.set_value();
    ending.join();
    EXPECT_THAT(behind.read_all(), Not(HasSubstr("500")));  // answered or not, it ends
}

TEST_F(AdminServerWithASite, AnswersAtOnceWhatItKnowsWhileItBlocks) {
    EXPECT_THAT(get("/busy"), HasSubstr("idle"));
    const auto slow = begin_slow();
    EXPECT_THAT(get("/file"), HasSubstr("a file"));
    while (get("/busy").find("busy") == std::string::npos) {
    }
    go_on_.set_value();
    EXPECT_THAT(slow->read_until("X-More"), HasSubstr("200 OK"));
    while (get("/busy").find("idle") == std::string::npos) {
    }
}

TEST_F(AdminServerWithASite, ARequestThatWaitsInVainIsAnsweredAndForgotten) {
    const auto slow = begin_slow();
    EXPECT_THAT(get("/in_vain"), HasSubstr("in vain"));
    go_on_.set_value();
    EXPECT_THAT(get("/act"), HasSubstr("GET /act"));
    EXPECT_EQ(asked_, 2U);
}

TEST_F(AdminServerWithASite, IsLetGoWhileItBlocksAndFreesItsAddress) {
    const auto slow = begin_slow();
    const std::uint16_t port = server_->port();
    const std::future<void> gone = AdminServer::let_go(std::move(server_));
    EXPECT_EQ(gone.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    EXPECT_TRUE(slow->is_closed());
    auto next = AdminServer::start("127.0.0.1", port, {});
    EXPECT_TRUE(next.ok()) << next.error().message;
    const Connection behind(port);
    go_on_.set_value();
    EXPECT_EQ(gone.wait_for(kPatience), std::future_status::ready);
    EXPECT_EQ(asked_, 1U);
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(AdminServer::let_go(*std::move(next)).wait_for(std::chrono::seconds(0)),
              std::future_status::ready);
}

TEST(Pages, LiveWhileTheLoopsMove) {
    EXPECT_EQ(live_page({.loop_age_us = 1000}).status, 200U);
    EXPECT_EQ(live_page({.loop_age_us = kMaxLoopAgeUs}).status, 503U);
}

TEST(Pages, ReadyWhileTheDatabaseAnswersAlsoOnAStandby) {
    EXPECT_EQ(ready_page({.database = true, .leading = false}).status, 200U);
    const HttpResponse away =
        ready_page({.database = false, .database_error = "postgresql://a:s3cret@b/c is down"});
    EXPECT_EQ(away.status, 503U);
    EXPECT_THAT(away.body, HasSubstr("a:***@b"));
    EXPECT_THAT(ready_page({.database = false, .database_error = "10.0.0.7 is down"}, false).body,
                Not(HasSubstr("10.0.0.7")));
    EXPECT_THAT(ready_page({.database = true, .open_circuits = {"billing"}}).body,
                HasSubstr("\"open_circuits\":[\"billing\"]"));
}

}  // namespace
}  // namespace outbox::admin
