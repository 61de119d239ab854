#include "net/certificates.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <utility>

namespace outbox::net {

bool refuses_our_certificate(unsigned long code) {
    constexpr std::array kAlerts{SSL_AD_BAD_CERTIFICATE,     SSL_AD_UNSUPPORTED_CERTIFICATE,
                                 SSL_AD_CERTIFICATE_REVOKED, SSL_AD_CERTIFICATE_EXPIRED,
                                 SSL_AD_CERTIFICATE_UNKNOWN, SSL_AD_UNKNOWN_CA,
                                 SSL_AD_ACCESS_DENIED,       SSL_AD_CERTIFICATE_REQUIRED};
    const int alert = ERR_GET_REASON(code) - SSL_AD_REASON_OFFSET;
    return ERR_GET_LIB(code) == ERR_LIB_SSL &&
           std::find(kAlerts.begin(), kAlerts.end(), alert) != kAlerts.end();
}

std::string last_tls_error() {
    // The first says what happened, those behind it who asked for it.
    const unsigned long code = ERR_peek_error();
    ERR_clear_error();
    if (code == 0) return "the handshake failed";
    if (ERR_SYSTEM_ERROR(code)) return std::strerror(ERR_GET_REASON(code));
    if (refuses_our_certificate(code)) {
        return std::string(
                   "the server takes no certificate of ours, or wants one: see cert_file "
                   "and key_file (") +
               ERR_reason_error_string(code) + ")";
    }
    const char* reason = ERR_reason_error_string(code);
    return reason != nullptr ? reason : "TLS error " + std::to_string(code);
}

std::optional<std::string> load_certificates(ssl_ctx_st* context, const ServerAccess& access) {
    const auto unusable = [](const std::string& file) {
        return "cannot use " + file + ": " + last_tls_error();
    };
    ERR_clear_error();
    if (access.ca_file.empty()) {
        SSL_CTX_set_default_verify_paths(context);
    } else if (SSL_CTX_load_verify_locations(context, access.ca_file.c_str(), nullptr) != 1) {
        return unusable(access.ca_file);
    }
    if (access.cert_file.empty()) return std::nullopt;
    if (SSL_CTX_use_certificate_chain_file(context, access.cert_file.c_str()) != 1) {
        return unusable(access.cert_file);
    }
    if (SSL_CTX_use_PrivateKey_file(context, access.key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
        return unusable(access.key_file);
    }
    return std::nullopt;
}

bool expect_host(X509_VERIFY_PARAM_st* expected, const Host& host) {
    in6_addr address{};
    const char* name = host.name.c_str();
    if (::inet_pton(AF_INET, name, &address) == 1 || ::inet_pton(AF_INET6, name, &address) == 1) {
        X509_VERIFY_PARAM_set1_ip_asc(expected, name);
        return false;
    }
    X509_VERIFY_PARAM_set1_host(expected, name, host.name.size());
    return true;
}

Status check_files(const ServerAccess& access) {
    if (auto password = password_of(access); !password.ok()) {
        ErrorInfo error = password.error();
        error.advice = Advice::kStop;
        return error;
    }
    if (!access.tls) return {};
    struct Free {
        void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    };
    const std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_client_method()));
    auto why = load_certificates(context.get(), access);
    if (!why) return {};
    return {ErrorCode::kConfigInvalid, Advice::kStop, *std::move(why) + "; check the file"};
}

}  // namespace outbox::net
