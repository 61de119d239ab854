#include "mailbox/config.h"

#include <algorithm>

namespace outbox::mailbox {
namespace {

constexpr std::size_t kMaxMailboxNameBytes = 255;
constexpr std::string_view kPrefix = "mailbox+";

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

bool is_one_of(std::string_view name, std::span<const BackendOption> options) {
    return std::ranges::find(options, name, &BackendOption::name) != options.end();
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
                         std::span<const BackendOption> own) {
    url.remove_prefix(prefix.size());
    const auto question = url.find('?');
    std::string out(url.substr(0, question));
    std::string_view query = question == std::string_view::npos ? "" : url.substr(question + 1);
    char separator = '?';
    while (!query.empty()) {
        const auto end = query.find('&');
        const std::string_view item = query.substr(0, end);
        const bool ours = item.find('=') != std::string_view::npos &&
                          is_one_of(item.substr(0, item.find('=')), own);
        if (!item.empty() && !ours) {
            out.append(1, separator).append(item);
            separator = '&';
        }
        query = end == std::string_view::npos ? "" : query.substr(end + 1);
    }
    return out;
}

std::vector<std::pair<std::string, std::string>> own_query(const Url& url,
                                                           std::span<const BackendOption> own) {
    std::vector<std::pair<std::string, std::string>> out;
    for (const auto& parameter : url.query) {
        if (is_one_of(parameter.first, own)) out.push_back(parameter);
    }
    return out;
}

Result<MailboxConfig> parse_mailbox_url(std::string_view text, int connect_timeout_s,
                                        const std::map<std::string, std::string>& options) {
    const Result<Url> url = parse_url(text);
    if (!url.ok()) return url.error();
    const auto values = read_backend_options({"a mailbox", "mailbox.", kOptions},
                                             own_query(*url, kOptions), options);
    if (!values.ok()) return values.error();
    MailboxConfig config;
    config.connect_timeout_s = connect_timeout_s;
    config.mailbox = values->text("mailbox");
    config.owners = values->list("owner");
    if (Status status = check_name(config.mailbox); !status.ok()) return status;
    if (!url->scheme.starts_with(kPrefix))
        return invalid("'" + redact(text) + "' names no mailbox");
    config.target = database_url(text, kPrefix, kOptions);
    return config;
}

}  // namespace outbox::mailbox
