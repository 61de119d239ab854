#include "net/aws_credentials.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "core/ascii.h"

namespace outbox::net {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;
constexpr std::string_view kProcess = "credential_process";

// Of a setting of a profile. AWS' own tools prefer a role and SSO to a key that is written beside
// them, and such a key to a process.
bool is_other_source(std::string_view name) {
    return name == "role_arn" || name.starts_with("sso_") || name == kProcess;
}

// Nothing: it cannot be read, or is longer than any file of keys.
std::optional<std::string> read_key_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text(kMostFileBytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!file.eof() || file.bad()) return std::nullopt;
    text.resize(static_cast<std::size_t>(file.gcount()));
    return text;
}

bool is_there(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
}

}  // namespace

ErrorInfo key_failed(std::string why) {
    return {ErrorCode::kAuthFailed, Advice::kRetryDestination, "CREDENTIALS", std::move(why)};
}

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
}

AwsProfile read_profile(std::string_view text, std::string_view profile) {
    AwsProfile found;
    bool inside = false;
    while (!text.empty()) {
        const std::string_view whole = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), whole.size() + 1));
        const std::string_view line = trimmed(whole);
        if (line.starts_with('[')) {
            inside = line.ends_with(']') && trimmed(line.substr(1, line.size() - 2)) == profile;
            found.is_there = found.is_there || inside;
        }
        const std::size_t equals = line.find('=');
        if (!inside || equals == std::string_view::npos || line.starts_with('#')) continue;
        const std::string name = lower(trimmed(line.substr(0, equals)));
        const std::string_view value = trimmed(line.substr(equals + 1));
        if (name == "aws_access_key_id") found.key.access_key = value;
        if (name == "aws_secret_access_key") found.key.secret_key = value;
        if (name == "aws_session_token") found.key.session_token = value;
        if (is_other_source(name) && found.other_source.empty()) found.other_source = name;
    }
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
    std::string name = login.profile.empty() ? variable("AWS_PROFILE") : login.profile;
    const bool asked_for = !path.empty() || !name.empty();
    if (path.empty()) path = variable("HOME") + "/.aws/credentials";
    if (name.empty()) name = "default";
    const std::string where = "the profile '" + name + "' in " + path;
    const auto text = read_key_file(path);
    if (!text && (asked_for || is_there(path))) {
        return key_failed("the file of access keys " + path +
                          " cannot be read; check its path, and that this user may read it");
    }
    AwsProfile profile = read_profile(text.value_or(""), name);
    const bool whole = !profile.key.access_key.empty() && !profile.key.secret_key.empty();
    // With another key events would go to another account.
    if (!profile.other_source.empty() && !(whole && profile.other_source == kProcess)) {
        return key_failed(where + " has its key by " + profile.other_source +
                          ", which is not read; have the key written into the file (aws configure "
                          "export-credentials), or name another source");
    }
    if (whole) return std::optional(WrittenKey{std::move(profile.key), where});
    if (!profile.key.access_key.empty() || !profile.key.secret_key.empty()) {
        return key_failed(
            where + " has no " +
            (profile.key.access_key.empty() ? "aws_access_key_id" : "aws_secret_access_key"));
    }
    if (!asked_for) return std::optional<WrittenKey>();
    return key_failed(where + (profile.is_there ? " has no access key" : " is not there"));
}

}  // namespace outbox::net
