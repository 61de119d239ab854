#include "dashboard/gate.h"

#include <openssl/crypto.h>

#include "core/ascii.h"
#include "secrets/password_file.h"

namespace outbox::dashboard {
namespace {

// Takes the same time whatever differs; how long the token is, is no secret.
bool same_secret(std::string_view one, std::string_view other) {
    return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

bool same_name(std::string_view one, std::string_view other) {
    return lower(one) == lower(other);
}

// "https://host:port" -> "host:port". The scheme is not compared: TLS may end in front of us.
std::string_view place_of(std::string_view origin) {
    const auto scheme = origin.find("://");
    return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

}  // namespace

Result<std::string> read_token(const std::string& file) {
    auto token = read_secret(file, "admin token file");
    if (!token.ok()) {
        return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, {}, token.error().message};
    }
    if (token->size() < kMinTokenBytes) {
        return ErrorInfo{
            ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "the token in the admin token file " + file + " has " + std::to_string(token->size()) +
                " bytes, and could be guessed: make "
                "one of at least " +
                std::to_string(kMinTokenBytes) + ", for example with `openssl rand -hex 32`"};
    }
    return token;
}

std::optional<Refusal> refuse_foreign(const GateConfig& gate, const admin::HttpRequest& request) {
    const bool known = admin::names_this_machine(request.host) ||
                       same_name(admin::host_name(request.host), admin::host_name(gate.host));
    if (!known) {
        return Refusal{403, "host_foreign",
                       "the Host header does not name this machine: use localhost, an address, "
                       "or the name that is listened on"};
    }
    if (!request.origin.empty() && !same_name(place_of(request.origin), request.host)) {
        return Refusal{403, "origin_foreign", "the request comes from a page of another origin"};
    }
    return std::nullopt;
}

std::optional<Refusal> refuse_without_token(const GateConfig& gate,
                                            const admin::HttpRequest& request) {
    constexpr std::string_view kScheme = "bearer ";  // in whatever case (RFC 9110)
    if (!gate.token) {
        return Refusal{403, "read_only",
                       "nothing can be changed here: this was started without "
                       "--admin-token-file"};
    }
    if (!begins_with_word(request.authorization, kScheme)) {
        return Refusal{401, "token_missing", "give the token: Authorization: Bearer TOKEN"};
    }
    const auto token = gate.token();
    if (!token.ok()) return Refusal{503, "token_file", token.error().message};
    if (!same_secret(std::string_view(request.authorization).substr(kScheme.size()), *token)) {
        return Refusal{401, "token_wrong", "the token is not that of the admin token file"};
    }
    return std::nullopt;
}

std::optional<Refusal> refuse(const GateConfig& gate, const admin::HttpRequest& request) {
    if (auto foreign = refuse_foreign(gate, request)) return foreign;
    const bool reads = request.method == "GET";
    if (!reads && request.method != "POST") {
        return Refusal{405, "method", "only GET and POST are served here"};
    }
    if (reads && (gate.loopback || !gate.token)) return std::nullopt;
    if (auto missing = refuse_without_token(gate, request)) return missing;
    // What a form of another page can send has other types.
    if (!reads && !request.content_type.starts_with("application/json")) {
        return Refusal{415, "content_type", "send Content-Type: application/json"};
    }
    return std::nullopt;
}

}  // namespace outbox::dashboard
