#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "net/server_access.h"

namespace outbox::net {

/// Why a connection could not be made, or ended.
struct SocketFault {
    enum class Kind : std::uint8_t {
        kResolve,  ///< The host has no address.
        kConnect,  ///< Nobody listens there, or does not answer in time.
        kTls,      ///< The certificate is not the one that was expected, or the port speaks no TLS.
        kSetting,  ///< A file of certificates cannot be used.
        kEnded     ///< The server has closed it, or it broke.
    };
    Kind kind = Kind::kEnded;
    std::string text;
};

/// The word by which tables of errors know it: "RESOLVE", "CONNECT", "TLS", "SETTING", "ENDED".
[[nodiscard]] std::string_view word_of(SocketFault::Kind kind);

/// A TCP connection, with TLS where the access says so. Once it stands nothing blocks but `wait`,
/// and no signal is raised where the other side has gone. Used by one thread at a
/// time.
class Socket {
  public:
    /// Blocks up to `timeout`, except for the resolver, which has limits of its own.
    static std::unique_ptr<Socket> connect(const ServerAccess& access, const Host& host,
                                           std::chrono::milliseconds timeout, SocketFault& fault);
    /// The same without TLS, for a server that begins in clear.
    static std::unique_ptr<Socket> connect_in_clear(const Host& host,
                                                    std::chrono::milliseconds timeout,
                                                    SocketFault& fault);
    /// TLS from here on. All that was written is sent, and nothing that has come is unread. Blocks
    /// up to `timeout`.
    std::optional<SocketFault> secure(const ServerAccess& access, const Host& host,
                                      std::chrono::milliseconds timeout);
    /// Until when the certificate that the other side showed is valid, in seconds since 1970;
    /// nothing without TLS.
    [[nodiscard]] std::optional<std::int64_t> peer_certificate_end() const;
    ~Socket();
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    /// Keeps the bytes for `exchange`.
    void write(std::string_view bytes);
    /// Bytes that were written and are not sent yet.
    [[nodiscard]] std::size_t unsent() const;
    /// Sends what can be sent and appends what has come to `in`, up to some hundred KiB.
    std::optional<SocketFault> exchange(std::string& in);
    /// Until there may be something to read, or to send if anything is left, or `wake_fd` can be
    /// read, or the time is over.
    void wait(std::chrono::milliseconds most, int wake_fd = -1) const;
    /// The same for several.
    static void wait_for_any(std::span<const Socket* const> sockets,
                             std::chrono::milliseconds most);

  private:
    struct Tls;
    explicit Socket(int descriptor);
    std::optional<SocketFault> send_some();
    std::optional<SocketFault> receive_some(std::string& in);
    std::optional<SocketFault> exchange_tls(std::string& in);

    const int descriptor_;
    std::string out_;       // for the wire, from `sent_` on
    std::size_t sent_ = 0;  // of `out_`
    std::unique_ptr<Tls> tls_;
};

}  // namespace outbox::net
