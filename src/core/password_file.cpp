#include "core/password_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "core/redact.h"
#include "core/url.h"

namespace outbox {
namespace {

constexpr std::string_view kParameter = "password_file=";
constexpr std::size_t kMaxBytes = 4'096;

ErrorInfo refused(const std::string& path, const std::string& why) {
    return {ErrorCode::kAuthFailed, Advice::kStop, {}, "password file " + path + ": " + why};
}

Result<std::string> read_secret(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code failed;
    const fs::file_status about = fs::status(path, failed);
    if (failed) return refused(path, failed.message());
    if (!fs::is_regular_file(about)) return refused(path, "it is no file");
    if ((about.permissions() & fs::perms::others_all) != fs::perms::none) {
        return refused(path, "other users may read or change it; chmod o= " + path);
    }
    std::ifstream file(path, std::ios::binary);
    std::string text(kMaxBytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!file.eof() && !file) return refused(path, "cannot be read");
    text.resize(static_cast<std::size_t>(file.gcount()));
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
    if (text.empty()) return refused(path, "it is empty or cannot be read");
    return text;
}

}  // namespace

std::string with_parameter(std::string url, std::string_view name, std::string_view value) {
    constexpr std::string_view kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    url += url.find('?') == std::string::npos ? "?" : "&";
    url.append(name).append("=");
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        if (kPlain.find(c) != std::string_view::npos) {
            url += c;
        } else {
            url.append("%").append(1, kDigits[byte >> 4U]).append(1, kDigits[byte & 15U]);
        }
    }
    return url;
}

Result<std::string> with_password(const std::string& url) {
    const auto query = url.find('?');
    if (query == std::string::npos) return url;
    std::string rest = url.substr(0, query);
    std::string path;
    for (std::size_t at = query + 1; at <= url.size();) {
        const std::size_t end = std::min(url.find('&', at), url.size());
        const std::string part = url.substr(at, end - at);
        if (part.starts_with(kParameter)) {
            path = percent_decode(part.substr(kParameter.size()));
        } else if (!part.empty()) {
            rest += (rest.size() == query ? "?" : "&") + part;
        }
        at = end + 1;
    }
    if (path.empty()) return url;
    const auto parsed = parse_url(rest);
    if (!parsed.ok()) return parsed.status();
    if (!parsed->password.empty() || !parsed->query_value("password").empty()) {
        return ErrorInfo{ErrorCode::kConfigInvalid,
                         Advice::kStop,
                         {},
                         "the URL has a password and a password file; leave one of them out"};
    }
    auto secret = read_secret(path);
    if (!secret.ok()) return secret;
    remember_secret(*secret);
    return with_parameter(std::move(rest), "password", *secret);
}

}  // namespace outbox
