#include "net/aws_answers.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/redact.h"
#include "core/utf8.h"
#include "net/server_access.h"

namespace outbox::net {
namespace {

using nlohmann::json;

constexpr std::size_t kMostText = 300;
constexpr std::size_t kMostKey = 16'384;  // session tokens have up to some thousand characters
constexpr std::size_t kMostRoleName = 128;

// Such as may stand in a header.
bool is_word(std::string_view text) {
    return !text.empty() && text.size() <= kMostKey &&
           std::all_of(text.begin(), text.end(),
                       [](char c) { return std::isgraph(static_cast<unsigned char>(c)) != 0; });
}

bool is_key(const AwsCredentials& key) {
    return is_word(key.access_key) && is_word(key.secret_key) && is_word(key.session_token);
}

// "2026-11-25T17:10:40Z", also with a fraction of the second, or "+00:00" for the "Z".
std::optional<std::chrono::sys_seconds> parse_time(std::string_view text) {
    constexpr std::string_view kForm = "0000-00-00T00:00:00";
    if (text.size() <= kForm.size()) return std::nullopt;
    for (std::size_t i = 0; i < kForm.size(); ++i) {
        const bool digit = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
        if (kForm[i] == '0' ? !digit : text[i] != kForm[i]) return std::nullopt;
    }
    std::string_view rest = text.substr(kForm.size());
    if (rest.starts_with('.')) {
        rest.remove_prefix(std::min(rest.find_first_not_of("0123456789", 1), rest.size()));
    }
    if (rest != "Z" && rest != "+00:00" && rest != "+0000") return std::nullopt;
    const auto number = [text](std::size_t at, std::size_t digits, unsigned most) {
        unsigned value = most + 1;
        static_cast<void>(read_number<unsigned>(text.substr(at, digits), 0, most, value));
        return value;
    };
    const std::chrono::year_month_day day{std::chrono::year(static_cast<int>(number(0, 4, 9999))),
                                          std::chrono::month(number(5, 2, 12)),
                                          std::chrono::day(number(8, 2, 31))};
    const unsigned hour = number(11, 2, 23);
    const unsigned minute = number(14, 2, 59);
    const unsigned second = number(17, 2, 60);
    if (!day.ok() || hour > 23 || minute > 59 || second > 60) return std::nullopt;
    return std::chrono::sys_days(day) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
           std::chrono::seconds(second);
}

// A time that cannot be read is none that could be kept to.
std::optional<HandedKey> checked(AwsCredentials key, const std::string& expires) {
    HandedKey handed{std::move(key), parse_time(expires)};
    if (!is_key(handed.key) || (!expires.empty() && !handed.expires)) return std::nullopt;
    return handed;
}

std::string text_of(const json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

json object_of(std::string_view body) {
    json document = json::parse(body, nullptr, /*allow_exceptions=*/false);
    return document.is_object() ? document : json::object();
}

// What is between <tag> and </tag> at its first place: the answers of STS are flat there.
std::string_view element(std::string_view body, std::string_view tag) {
    const std::string open = "<" + std::string(tag) + ">";
    const std::size_t begin = body.find(open);
    if (begin == std::string_view::npos) return {};
    body.remove_prefix(begin + open.size());
    const std::size_t end = body.find("</" + std::string(tag) + ">");
    return end == std::string_view::npos ? std::string_view() : body.substr(0, end);
}

}  // namespace

std::optional<HandedKey> read_key_document(std::string_view body) {
    const json document = object_of(body);
    const std::string code = text_of(document, "Code");
    if (!code.empty() && code != "Success") return std::nullopt;
    return checked({text_of(document, "AccessKeyId"), text_of(document, "SecretAccessKey"),
                    text_of(document, "Token")},
                   text_of(document, "Expiration"));
}

std::optional<HandedKey> read_assumed_role(std::string_view body) {
    const std::string_view part = element(body, "Credentials");
    return checked(
        {std::string(element(part, "AccessKeyId")), std::string(element(part, "SecretAccessKey")),
         std::string(element(part, "SessionToken"))},
        std::string(element(part, "Expiration")));
}

std::string read_key_refusal(std::string_view body) {
    std::string code(element(body, "Code"));
    std::string text(element(body, "Message"));
    if (code.empty()) {
        const json document = object_of(body);
        code = text_of(document, document.contains("Code") ? "Code" : "code");
        text = text_of(document, document.contains("Message") ? "Message" : "message");
        if (code == "Success") code.clear();
    }
    // Half of a secret would be known for one no longer.
    std::string why = redact(code).substr(0, kMostText);
    if (!why.empty() && !text.empty()) why += ": ";
    return to_printable(why + redact(text).substr(0, kMostText));
}

std::string read_role_name(std::string_view body) {
    std::string_view line = body.substr(0, body.find('\n'));
    if (line.ends_with('\r')) line.remove_suffix(1);
    // By the reference of IAM.
    const bool plain = std::all_of(line.begin(), line.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               std::string_view("_+=,.@-").find(c) != std::string_view::npos;
    });
    return plain && line.size() <= kMostRoleName ? std::string(line) : std::string();
}

}  // namespace outbox::net
