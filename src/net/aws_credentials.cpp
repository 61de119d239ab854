#include "net/aws_credentials.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "core/ascii.h"

namespace outbox::net {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;

}  // namespace

ErrorInfo key_failed(std::string why) {
    return {ErrorCode::kAuthFailed, Advice::kRetryDestination, "CREDENTIALS", std::move(why)};
}

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
}

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

Result<std::optional<WrittenKey>> key_of_url(const ServerAccess& access) {
    if (access.user.empty()) return std::optional<WrittenKey>();
    auto secret = password_of(access);
    if (!secret.ok()) return key_failed(secret.error().message);
    return std::optional(WrittenKey{
        {access.user, *std::move(secret), {}},
        access.password_file.empty() ? "the URL" : "the URL and " + access.password_file});
}

Result<std::optional<WrittenKey>> key_of_environment() {
    WrittenKey found{{variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"),
                      variable("AWS_SESSION_TOKEN")},
                     "AWS_ACCESS_KEY_ID"};
    const bool id = !found.key.access_key.empty();
    const bool secret = !found.key.secret_key.empty();
    if (id && secret) return std::optional(std::move(found));
    if (!id && !secret) return std::optional<WrittenKey>();
    // With another key events would go to another account.
    return key_failed(id ? "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not"
                         : "AWS_SECRET_ACCESS_KEY is set and AWS_ACCESS_KEY_ID is not");
}

Result<std::optional<WrittenKey>> key_of_file(const AwsLogin& login) {
    std::string path = login.credentials_file;
    if (path.empty()) path = variable("AWS_SHARED_CREDENTIALS_FILE");
    const bool asked_for = !path.empty() || !login.profile.empty();
    if (path.empty()) path = variable("HOME") + "/.aws/credentials";
    std::string profile = login.profile.empty() ? variable("AWS_PROFILE") : login.profile;
    if (profile.empty()) profile = "default";
    std::ifstream file(path, std::ios::binary);
    std::string text(kMostFileBytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (auto found = read_profile(text, profile)) {
        return std::optional(
            WrittenKey{*std::move(found), "the profile '" + profile + "' in " + path});
    }
    if (!asked_for) return std::optional<WrittenKey>();
    return key_failed("the file " + path + " has no access key of the profile '" + profile +
                      "', or cannot be read");
}

}  // namespace outbox::net
