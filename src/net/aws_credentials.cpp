#include "net/aws_credentials.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "core/redact.h"

namespace outbox::net {
namespace {

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\r";
    const std::size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
}

ErrorInfo failed(std::string why) {
    return {ErrorCode::kAuthFailed, Advice::kRetryDestination, "CREDENTIALS", std::move(why)};
}

Result<std::optional<AwsCredentials>> of_file(const AwsLogin& login) {
    std::string path = login.credentials_file;
    if (path.empty()) path = variable("AWS_SHARED_CREDENTIALS_FILE");
    const bool asked_for = !path.empty() || !login.profile.empty();
    if (path.empty()) path = variable("HOME") + "/.aws/credentials";
    std::string profile = login.profile.empty() ? variable("AWS_PROFILE") : login.profile;
    if (profile.empty()) profile = "default";
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    auto found = read_profile(text, profile);
    if (found || !asked_for) return found;
    return failed("the file " + path + " has no access key of the profile '" + profile +
                  "', or cannot be read");
}

}  // namespace

std::optional<AwsCredentials> read_profile(std::string_view text, std::string_view profile) {
    AwsCredentials found;
    bool inside = false;
    while (!text.empty()) {
        const std::string_view whole = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), whole.size() + 1));
        const std::string_view line = trimmed(whole);
        if (line.starts_with('[')) {
            inside = line.ends_with(']') && trimmed(line.substr(1, line.size() - 2)) == profile;
        }
        const std::size_t equals = line.find('=');
        if (!inside || equals == std::string_view::npos || line.starts_with('#')) continue;
        const std::string_view name = trimmed(line.substr(0, equals));
        const std::string_view value = trimmed(line.substr(equals + 1));
        if (name == "aws_access_key_id") found.access_key = value;
        if (name == "aws_secret_access_key") found.secret_key = value;
        if (name == "aws_session_token") found.session_token = value;
    }
    if (found.access_key.empty() || found.secret_key.empty()) return std::nullopt;
    return found;
}

Result<std::optional<AwsCredentials>> current_credentials(const ServerAccess& access,
                                                          const AwsLogin& login,
                                                          std::string_view prefix) {
    std::optional<AwsCredentials> found;
    if (!access.user.empty()) {
        auto secret = password_of(access);
        if (!secret.ok()) return failed(secret.error().message);
        found = AwsCredentials{access.user, *std::move(secret), {}};
    }
    const bool named = !login.profile.empty() || !login.credentials_file.empty();
    if (!found && !named) {
        const std::string id = variable("AWS_ACCESS_KEY_ID");
        const std::string secret = variable("AWS_SECRET_ACCESS_KEY");
        if (!id.empty() && !secret.empty()) {
            found = AwsCredentials{id, secret, variable("AWS_SESSION_TOKEN")};
        }
    }
    if (!found) {
        auto read = of_file(login);
        if (!read.ok()) return read;
        found = *std::move(read);
    }
    if (!found && access.tls) {
        return failed(
            "there is no access key: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or " +
            std::string(prefix) + "credentials_file");
    }
    if (found) {
        remember_secret(found->secret_key);
        if (!found->session_token.empty()) remember_secret(found->session_token);
    }
    return found;
}

}  // namespace outbox::net
