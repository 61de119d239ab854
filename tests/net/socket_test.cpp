#include "net/socket.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/certificates.h"
#include "tests/support/certificates.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/process.h"
#include "tests/support/two_addresses.h"

namespace outbox::net {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Takes one connection on a port of its own and closes it when it is told to.
class Peer {
  public:
    Peer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
            ::listen(listener_, 1) != 0) {
            throw std::runtime_error("it cannot listen");
        }
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
        host_ = {"127.0.0.1", ::ntohs(address.sin_port)};
    }
    ~Peer() { ::close(listener_); }
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;

    [[nodiscard]] const Host& host() const { return host_; }
    void accept_and_close() const { ::close(::accept(listener_, nullptr, nullptr)); }

  private:
    int listener_;
    Host host_;
};

TEST(Socket, APeerThatHasGoneIsAFaultAndNoSignal) {
    const Peer peer;
    SocketFault fault;
    const auto socket = Socket::connect({}, peer.host(), 5s, fault);
    ASSERT_NE(socket, nullptr) << fault.text;
    peer.accept_and_close();
    // The first bytes are answered with a reset, the next ones would raise SIGPIPE.
    for (int i = 0; i < 3; ++i) {
        socket->write("x");
        socket->wait(100ms);
        std::string in;
        const auto ended = socket->exchange(in);
        ASSERT_TRUE(ended.has_value());
        EXPECT_EQ(ended->kind, SocketFault::Kind::kEnded);
        ::usleep(20'000);
    }
}

TEST(Socket, SaysThatNobodyListens) {
    const Host nobody = [] { return Peer().host(); }();
    SocketFault fault;
    EXPECT_EQ(Socket::connect({}, nobody, 5s, fault), nullptr);
    EXPECT_EQ(fault.kind, SocketFault::Kind::kConnect);
}

TEST(Socket, AnAddressThatSwallowsPacketsLeavesTimeForTheNextOne) {
    const Peer peer;
    const test::TwoAddresses two(peer.host().port);
    SocketFault fault;
    EXPECT_NE(Socket::connect({}, {"localhost", peer.host().port}, 1s, fault), nullptr)
        << fault.text;
}

TEST(Socket, FilesThatCannotBeUsedAreRefusedBeforeAnythingIsConnected) {
    EXPECT_TRUE(check_files({}).ok());
    ServerAccess access;
    access.password_file = "/no/such/file";
    EXPECT_EQ(check_files(access).error().code, ErrorCode::kAuthFailed);
    EXPECT_EQ(check_files(access).error().advice, Advice::kStop);
    access.password_file.clear();
    access.tls = true;
    access.ca_file = "/no/such/file";
    EXPECT_EQ(check_files(access).error().code, ErrorCode::kConfigInvalid);
    EXPECT_EQ(check_files(access).error().advice, Advice::kStop);
    EXPECT_THAT(check_files(access).error().message, HasSubstr("No such file"));
}

// In TLS 1.3 that is said behind the handshake.
TEST(Socket, AServerThatTakesNoCertificateOfOursSaysWhoseFaultItIs) {
    test::Certificates certificates;
    certificates.sign("server", "localhost", "subjectAltName=IP:127.0.0.1");
    certificates.make_ca("other");
    const int port = test::free_port();
    test::Process server(
        {.command = {"openssl", "s_server", "-accept", std::to_string(port), "-cert",
                     certificates.file("server.crt"), "-key", certificates.file("server.key"),
                     "-Verify", "1", "-verify_return_error", "-www", "-CAfile",
                     certificates.file("other.crt")}});
    ServerAccess access;
    access.tls = true;
    access.ca_file = certificates.file("ca.crt");
    for (const bool shown : {false, true}) {
        access.cert_file = shown ? certificates.file("server.crt") : "";
        access.key_file = shown ? certificates.file("server.key") : "";
        SocketFault fault;
        std::unique_ptr<Socket> socket;
        ASSERT_TRUE(test::eventually(20s, "it listens", [&] {
            socket =
                Socket::connect(access, {"127.0.0.1", static_cast<std::uint16_t>(port)}, 5s, fault);
            return socket != nullptr || fault.kind != SocketFault::Kind::kConnect;
        }));
        ASSERT_NE(socket, nullptr) << fault.text;
        std::optional<SocketFault> ended;
        std::string in;
        for (int i = 0; i < 100 && !ended; ++i) {
            socket->wait(100ms);
            ended = socket->exchange(in);
        }
        ASSERT_TRUE(ended.has_value());
        EXPECT_EQ(ended->kind, SocketFault::Kind::kTls) << ended->text;
        EXPECT_THAT(ended->text, HasSubstr("see cert_file and key_file")) << shown;
    }
}

}  // namespace
}  // namespace outbox::net
