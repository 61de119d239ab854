#include "net/socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "net/certificates.h"
#include "net/connect.h"

namespace outbox::net {
namespace {

using Time = std::chrono::steady_clock::time_point;
using Kind = SocketFault::Kind;

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr int kReads = 8;  // of one exchange, so that sending has its turn
constexpr std::size_t kCompactBytes = std::size_t{256} << 10;

template <auto Release>
struct Releaser {
    template <typename T>
    void operator()(T* thing) const {
        Release(thing);
    }
};
template <typename T, auto Release>
using Owned = std::unique_ptr<T, Releaser<Release>>;

std::string errno_text() {
    return std::strerror(errno);
}

int milliseconds_until(Time end) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    return static_cast<int>(std::max<std::chrono::milliseconds::rep>(left.count(), 0));
}

bool wait_for(int descriptor, short events, int most_ms) {
    pollfd one{descriptor, events, 0};
    return ::poll(&one, 1, most_ms) > 0;
}

}  // namespace

std::string_view word_of(SocketFault::Kind kind) {
    switch (kind) {
        case Kind::kResolve:
            return "RESOLVE";
        case Kind::kConnect:
            return "CONNECT";
        case Kind::kTls:
            return "TLS";
        case Kind::kSetting:
            return "SETTING";
        case Kind::kEnded:
            break;
    }
    return "ENDED";
}

// Through buffers in memory: OpenSSL's own writes to a socket may raise SIGPIPE.
struct Socket::Tls {
    Owned<SSL_CTX, SSL_CTX_free> context;
    Owned<SSL, SSL_free> session;
    BIO* from_wire = nullptr;  // the session's
    BIO* to_wire = nullptr;
    std::string plain;  // written, not encrypted yet

    std::optional<SocketFault> set_up(const ServerAccess& access, const Host& host);
    // What the session wants to say, to the end of `out`.
    void drain(std::string& out) const {
        std::array<char, kReadBytes> bytes;
        int count = 0;
        while ((count = BIO_read(to_wire, bytes.data(), static_cast<int>(bytes.size()))) > 0) {
            out.append(bytes.data(), static_cast<std::size_t>(count));
        }
    }
};

std::optional<SocketFault> Socket::Tls::set_up(const ServerAccess& access, const Host& host) {
    context.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
    if (auto why = load_certificates(context.get(), access)) {
        return SocketFault{Kind::kSetting, *std::move(why)};
    }
    session.reset(SSL_new(context.get()));
    from_wire = BIO_new(BIO_s_mem());
    to_wire = BIO_new(BIO_s_mem());
    SSL_set_bio(session.get(), from_wire, to_wire);
    SSL_set_connect_state(session.get());
    SSL_set_mode(session.get(),
                 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // Without `verify` nobody asks whose certificate it is.
    if (expect_host(SSL_get0_param(session.get()), host)) {
        SSL_set_tlsext_host_name(session.get(), host.name.c_str());
    }
    if (access.verify) SSL_set_verify(session.get(), SSL_VERIFY_PEER, nullptr);
    return std::nullopt;
}

Socket::Socket(int descriptor) : descriptor_(descriptor) {}

Socket::~Socket() {
    ::close(descriptor_);
}

std::unique_ptr<Socket> Socket::connect(const ServerAccess& access, const Host& host,
                                        std::chrono::milliseconds timeout, SocketFault& fault) {
    const Time end = std::chrono::steady_clock::now() + timeout;
    auto socket = connect_in_clear(host, timeout, fault);
    if (socket == nullptr || !access.tls) return socket;
    auto failed = socket->secure(access, host, std::chrono::milliseconds(milliseconds_until(end)));
    if (!failed) return socket;
    fault = std::move(*failed);
    return nullptr;
}

std::unique_ptr<Socket> Socket::connect_in_clear(const Host& host,
                                                 std::chrono::milliseconds timeout,
                                                 SocketFault& fault) {
    const int descriptor = connect_to(host, timeout, fault);
    if (descriptor < 0) return nullptr;
    return std::unique_ptr<Socket>(new Socket(descriptor));
}

std::optional<SocketFault> Socket::secure(const ServerAccess& access, const Host& host,
                                          std::chrono::milliseconds timeout) {
    const Time end = std::chrono::steady_clock::now() + timeout;
    tls_ = std::make_unique<Tls>();
    if (auto fault = tls_->set_up(access, host)) return fault;
    while (true) {
        ERR_clear_error();
        const int done = SSL_do_handshake(tls_->session.get());
        const int why = done == 1 ? SSL_ERROR_NONE : SSL_get_error(tls_->session.get(), done);
        tls_->drain(out_);
        if (auto fault = send_some()) return fault;
        if (done == 1) return std::nullopt;
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
            const long verified = SSL_get_verify_result(tls_->session.get());
            return SocketFault{Kind::kTls, verified != X509_V_OK
                                               ? X509_verify_cert_error_string(verified)
                                               : last_tls_error()};
        }
        const int left = milliseconds_until(end);
        if (left == 0) return SocketFault{Kind::kTls, "no answer in time"};
        const bool to_send = unsent() > 0;
        wait_for(descriptor_, static_cast<short>(to_send ? POLLIN | POLLOUT : POLLIN), left);
        std::string in;
        if (auto fault = receive_some(in)) {
            return SocketFault{Kind::kTls, "in the handshake " + fault->text};
        }
        BIO_write(tls_->from_wire, in.data(), static_cast<int>(in.size()));
    }
}

std::optional<std::int64_t> Socket::peer_certificate_end() const {
    if (!tls_) return std::nullopt;
    const Owned<X509, X509_free> shown(SSL_get1_peer_certificate(tls_->session.get()));
    std::tm parts{};
    if (!shown || ASN1_TIME_to_tm(X509_get0_notAfter(shown.get()), &parts) != 1) return {};
    return timegm(&parts);
}

void Socket::write(std::string_view bytes) {
    (tls_ ? tls_->plain : out_).append(bytes);
}

std::size_t Socket::unsent() const {
    return out_.size() - sent_ + (tls_ ? tls_->plain.size() : 0);
}

std::optional<SocketFault> Socket::exchange(std::string& in) {
    if (tls_) return exchange_tls(in);
    if (auto fault = send_some()) return fault;
    return receive_some(in);
}

std::optional<SocketFault> Socket::exchange_tls(std::string& in) {
    SSL* session = tls_->session.get();
    std::string wire;
    auto ended = receive_some(wire);
    BIO_write(tls_->from_wire, wire.data(), static_cast<int>(wire.size()));
    ERR_clear_error();
    std::array<char, kReadBytes> bytes;
    int count = 0;
    while ((count = SSL_read(session, bytes.data(), static_cast<int>(bytes.size()))) > 0) {
        in.append(bytes.data(), static_cast<std::size_t>(count));
    }
    const int why = SSL_get_error(session, count);
    if (!ended && why == SSL_ERROR_ZERO_RETURN) ended = SocketFault{Kind::kEnded, "it was closed"};
    if (!ended && why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
        const bool refused = refuses_our_certificate(ERR_peek_error());
        ended = SocketFault{refused ? Kind::kTls : Kind::kEnded, last_tls_error()};
    }
    if (ended) return ended;
    std::size_t done = 0;
    std::string& plain = tls_->plain;
    while (done < plain.size() &&
           (count = SSL_write(session, plain.data() + done,
                              static_cast<int>(std::min(plain.size() - done, kReadBytes)))) > 0) {
        done += static_cast<std::size_t>(count);
    }
    plain.erase(0, done);
    tls_->drain(out_);
    return send_some();
}

std::optional<SocketFault> Socket::send_some() {
    while (sent_ < out_.size()) {
        const ssize_t count =
            ::send(descriptor_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN) {
            // What has gone is not carried along for ever.
            if (sent_ >= kCompactBytes) out_.erase(0, std::exchange(sent_, 0));
            return std::nullopt;
        }
        if (count < 0) {
            // What the server said before it went can still be read.
            if (errno != EPIPE && errno != ECONNRESET)
                return SocketFault{Kind::kEnded, errno_text()};
            sent_ = out_.size();
            break;
        }
        sent_ += static_cast<std::size_t>(count);
    }
    out_.clear();
    sent_ = 0;
    return std::nullopt;
}

std::optional<SocketFault> Socket::receive_some(std::string& in) {
    std::array<char, kReadBytes> bytes;
    for (int i = 0; i < kReads; ++i) {
        const ssize_t count = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
        if (count > 0) {
            in.append(bytes.data(), static_cast<std::size_t>(count));
            if (static_cast<std::size_t>(count) < bytes.size()) return std::nullopt;
        } else if (count == 0) {
            return SocketFault{Kind::kEnded, "it was closed"};
        } else if (errno == EAGAIN) {
            return std::nullopt;
        } else if (errno != EINTR) {
            return SocketFault{Kind::kEnded, errno_text()};
        }
    }
    return std::nullopt;
}

void Socket::wait(std::chrono::milliseconds most, int wake_fd) const {
    const auto events = static_cast<short>(unsent() > 0 ? POLLIN | POLLOUT : POLLIN);
    std::array<pollfd, 2> files{{{descriptor_, events, 0}, {wake_fd, POLLIN, 0}}};
    ::poll(files.data(), files.size(), static_cast<int>(most.count()));
}

void Socket::wait_for_any(std::span<const Socket* const> sockets, std::chrono::milliseconds most) {
    std::vector<pollfd> files;
    for (const Socket* socket : sockets) {
        const auto events = static_cast<short>(socket->unsent() > 0 ? POLLIN | POLLOUT : POLLIN);
        files.push_back({socket->descriptor_, events, 0});
    }
    ::poll(files.data(), files.size(), static_cast<int>(most.count()));
}

}  // namespace outbox::net
