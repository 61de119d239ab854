#include "net/certificate_dates.h"

#include <algorithm>
#include <ctime>
#include <memory>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <optional>
#include <string_view>

#include "net/socket.h"

namespace outbox::net {
namespace {

using Time = std::chrono::steady_clock::time_point;
using std::chrono::milliseconds;

constexpr std::size_t kMaxGreeting = std::size_t{64} << 10;

ErrorInfo not_seen(const Host& host, const std::string& why) {
    return {ErrorCode::kSinkUnavailable,
            Advice::kRetryDestination,
            {},
            host.name + ":" + std::to_string(host.port) + ": " + why};
}

milliseconds left_until(Time end) {
    return std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(
                                         end - std::chrono::steady_clock::now()));
}

// Whether TLS may begin now.
bool say_prelude(Socket& socket, Time end, const TlsPrelude& prelude) {
    if (!prelude.asked.empty()) socket.write(prelude.asked);
    if (prelude.begins == nullptr) return true;
    std::string said;
    while (true) {
        if (const auto begins = prelude.begins(said)) return *begins;
        const milliseconds left = left_until(end);
        if (left.count() == 0 || said.size() > kMaxGreeting || socket.exchange(said)) return false;
        if (!prelude.begins(said)) socket.wait(left);
    }
}

std::optional<std::int64_t> end_of(const X509* certificate) {
    std::tm parts{};
    if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &parts) != 1) return std::nullopt;
    return timegm(&parts);
}

}  // namespace

Result<std::int64_t> certificate_end_of(const Host& host, const TlsPrelude& prelude,
                                        milliseconds timeout) {
    const Time end = std::chrono::steady_clock::now() + timeout;
    SocketFault fault;
    const auto socket = Socket::connect_in_clear(host, timeout, fault);
    if (socket == nullptr) return not_seen(host, fault.text);
    if (!say_prelude(*socket, end, prelude)) return not_seen(host, "it begins no TLS");
    ServerAccess anyone;
    anyone.tls = true;
    anyone.verify = false;
    if (const auto refused = socket->secure(anyone, host, left_until(end))) {
        return not_seen(host, refused->text);
    }
    if (const auto until = socket->peer_certificate_end()) return *until;
    return not_seen(host, "it shows no certificate");
}

Result<std::int64_t> certificate_end_of_file(const std::string& path, bool any) {
    const std::unique_ptr<BIO, decltype(&BIO_free)> file(BIO_new_file(path.c_str(), "r"), BIO_free);
    std::optional<std::int64_t> until;
    while (file != nullptr) {
        const std::unique_ptr<X509, decltype(&X509_free)> certificate(
            PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr), X509_free);
        if (certificate == nullptr) break;
        const auto its = end_of(certificate.get());
        if (its && (!until || *its > *until)) until = its;
        if (!any) break;
    }
    if (until) return *until;
    return ErrorInfo{
        ErrorCode::kConfigInvalid, Advice::kStop, {}, path + " holds no certificate in PEM"};
}

TlsUse tls_use_of(const ServerAccess& access) {
    TlsUse use;
    if (!access.tls) return use;
    for (const Host& host : access.hosts) use.servers.emplace_back(host.name, host.port);
    if (!access.cert_file.empty()) use.own_files = {access.cert_file};
    if (!access.ca_file.empty()) use.trusted_files = {access.ca_file};
    return use;
}

}  // namespace outbox::net
