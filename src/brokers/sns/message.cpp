#include "brokers/sns/message.h"

#include <algorithm>
#include <cctype>

#include "core/url.h"

namespace outbox::sns {
namespace {

constexpr std::string_view kVersion = "2010-03-31";

bool is_unreserved(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_' ||
           c == '~';
}

void append_parameter(std::string_view name, std::string_view value, std::string& out) {
    if (!out.empty()) out += '&';
    out.append(name).append("=");
    for (const char c : value) {
        if (is_unreserved(c)) {
            out += c;
        } else {
            append_percent(c, out);
        }
    }
}

}  // namespace

std::string entry(const aws::Message& message) {
    std::string out;
    append_parameter("Message", message.body, out);
    std::size_t number = 0;
    for (const auto& [name, value] : message.attributes) {
        const std::string begin = "MessageAttributes.entry." + std::to_string(++number);
        append_parameter(begin + ".Name", name, out);
        append_parameter(begin + ".Value.DataType", aws::kAttributeType, out);
        append_parameter(begin + ".Value.StringValue", value, out);
    }
    if (!message.group.empty()) {
        append_parameter("MessageGroupId", message.group, out);
        append_parameter("MessageDeduplicationId", message.deduplication_id, out);
    }
    return out;
}

aws::Call batch(std::string_view arn, std::span<const std::string_view> entries) {
    aws::Call made = call("PublishBatch");
    append_parameter("TopicArn", arn, made.body);
    for (std::size_t i = 0; i < entries.size(); ++i) {
        const std::string begin =
            "&PublishBatchRequestEntries.member." + std::to_string(i + 1) + ".";
        made.body.append(begin).append("Id=").append(std::to_string(i));
        for (std::string_view rest = entries[i]; !rest.empty();) {
            const std::string_view one = rest.substr(0, rest.find('&'));
            made.body.append(begin).append(one);
            rest.remove_prefix(std::min(rest.size(), one.size() + 1));
        }
    }
    return made;
}

aws::Call call(std::string_view action) {
    aws::Call made{action, ""};
    append_parameter("Action", action, made.body);
    append_parameter("Version", kVersion, made.body);
    return made;
}

}  // namespace outbox::sns
