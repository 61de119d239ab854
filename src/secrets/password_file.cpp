#include "secrets/password_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/redact.h"
#include "core/url.h"

namespace outbox {
namespace {

constexpr std::string_view kParameter = "password_file=";
constexpr std::size_t kMaxBytes = std::size_t{64} << 10;

// A file with a secret; messages call it `what`.
struct SecretFile {
    const std::string& path;
    std::string_view what;
    [[nodiscard]] ErrorInfo refused(const std::string& why) const {
        // Whoever writes it anew may not be done.
        return {ErrorCode::kAuthFailed,
                Advice::kRetryDestination,
                {},
                std::string(what) + " " + path + ": " + why};
    }
};

// Looked at through the open file, so that it is the one that is read.
Result<std::string> text_of(const SecretFile& secret) {
    const int file = ::open(secret.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return secret.refused(std::strerror(errno));
    struct stat about{};
    std::string text(kMaxBytes, '\0');
    ssize_t size = -1;
    if (::fstat(file, &about) == 0 && S_ISREG(about.st_mode)) {
        size = ::read(file, text.data(), text.size());
    }
    ::close(file);
    if (size < 0) return secret.refused("cannot be read");
    if ((about.st_mode & S_IRWXO) != 0) {
        return secret.refused("other users may read or change it; chmod o= " + secret.path);
    }
    text.resize(static_cast<std::size_t>(size));
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
    if (text.empty()) return secret.refused("it is empty");
    if (text.find('\0') != std::string::npos) return secret.refused("it has a NUL byte");
    return text;
}

// The URL without the parameter, whose value goes to `path`.
std::string take_parameter(const std::string& url, std::string& path) {
    const auto query = url.find('?');
    if (query == std::string::npos) return url;
    std::string rest = url.substr(0, query);
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
    return rest;
}

}  // namespace

Result<std::string> read_secret(const std::string& path, std::string_view what) {
    auto secret = text_of({path, what});
    if (secret.ok()) remember_secret(*secret);
    return secret;
}

Result<std::string> read_password(const std::string& path) {
    return read_secret(path, "password file");
}

std::string without_password_file(const std::string& url) {
    std::string path;
    return take_parameter(url, path);
}

Result<std::string> with_password(const std::string& url) {
    std::string path;
    std::string rest = take_parameter(url, path);
    if (path.empty()) return url;
    const auto parsed = parse_url(rest);
    if (!parsed.ok()) return parsed.status();
    if (!parsed->password.empty() || !parsed->query_value("password").empty()) {
        return ErrorInfo{ErrorCode::kConfigInvalid,
                         Advice::kStop,
                         {},
                         "the URL has a password and a password file; leave one of them out"};
    }
    const auto secret = read_password(path);
    if (!secret.ok()) return secret.status();
    return with_parameter(std::move(rest), "password", *secret);
}

}  // namespace outbox
