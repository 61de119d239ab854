#include "mailbox/config.h"

#include <algorithm>
#include <array>

#include "core/url.h"

namespace outbox::mailbox {
namespace {

constexpr std::size_t kMaxMailboxNameBytes = 255;
constexpr std::string_view kPrefix = "mailbox+";
constexpr std::array<std::string_view, 2> kOwn{"mailbox=", "owner="};

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

Status check_name(std::string_view name) {
    const bool printable = std::none_of(name.begin(), name.end(),
                                        [](char c) { return static_cast<unsigned char>(c) < ' '; });
    if (!name.empty() && name.size() <= kMaxMailboxNameBytes && printable) return {};
    return invalid("?mailbox= needs a name of 1 to " + std::to_string(kMaxMailboxNameBytes) +
                   " bytes without control characters");
}

}  // namespace

std::string database_url(std::string_view url, std::string_view prefix,
                         std::span<const std::string_view> own) {
    url.remove_prefix(prefix.size());
    const auto question = url.find('?');
    std::string out(url.substr(0, question));
    std::string_view query = question == std::string_view::npos ? "" : url.substr(question + 1);
    char separator = '?';
    while (!query.empty()) {
        const auto end = query.find('&');
        const std::string_view item = query.substr(0, end);
        const bool ours = std::ranges::any_of(
            own, [item](std::string_view name) { return item.starts_with(name); });
        if (!item.empty() && !ours) {
            out.append(1, separator).append(item);
            separator = '&';
        }
        query = end == std::string_view::npos ? "" : query.substr(end + 1);
    }
    return out;
}

Result<MailboxConfig> parse_mailbox_url(std::string_view text, int connect_timeout_s) {
    const Result<Url> url = parse_url(text);
    if (!url.ok()) return url.error();
    MailboxConfig config;
    config.connect_timeout_s = connect_timeout_s;
    config.mailbox = url->query_value("mailbox", "default");
    if (Status status = check_name(config.mailbox); !status.ok()) return status;
    if (!url->scheme.starts_with(kPrefix))
        return invalid("'" + redact(text) + "' names no mailbox");
    config.target = database_url(text, kPrefix, kOwn);
    for (const auto& [name, value] : url->query) {
        if (name == "owner") config.owners.push_back(value);
    }
    return config;
}

}  // namespace outbox::mailbox
