#include "brokers/sns/topic_name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace outbox::sns {
namespace {

constexpr std::string_view kFifo = ".fifo";
constexpr std::string_view kArn = "arn:";
constexpr std::size_t kMaxBytes = 256;  // with ".fifo"
constexpr std::ptrdiff_t kColons = 5;   // in an ARN
constexpr std::string_view kPlace = ":sns:";

// By how regions begin; all others are "aws".
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kPartitions{
    {{"cn-", "aws-cn"}, {"us-gov-", "aws-us-gov"}}};

bool fits(unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_';
}

}  // namespace

bool is_arn(std::string_view topic) {
    return topic.starts_with(kArn);
}

std::string arn_of(std::string_view region, std::string_view account, std::string_view name) {
    std::string_view partition = "aws";
    for (const auto& [begin, other] : kPartitions) {
        if (region.starts_with(begin)) partition = other;
    }
    std::string arn(kArn);
    arn.append(partition).append(kPlace).append(region).append(":").append(account);
    return arn.append(":").append(name);
}

Status check_topic(std::string_view topic) {
    const auto refused = [topic](std::string_view why) {
        return Status(ErrorCode::kTopicInvalid, Advice::kDeadLetter,
                      "topic '" + std::string(topic) + "' is no topic of SNS: " + std::string(why));
    };
    std::string_view name = topic;
    if (is_arn(topic)) {
        if (std::count(topic.begin(), topic.end(), ':') != kColons ||
            topic.find(kPlace) == std::string_view::npos) {
            return refused("an ARN is arn:aws:sns:REGION:ACCOUNT:NAME");
        }
        name.remove_prefix(topic.rfind(':') + 1);
    }
    if (name.size() > kMaxBytes) return refused("a name has at most 256 characters");
    if (name.ends_with(kFifo)) name.remove_suffix(kFifo.size());
    if (name.empty() || !std::all_of(name.begin(), name.end(), fits)) {
        return refused(
            "a name has letters, digits, - and _, and may end with .fifo; a template or the "
            "event's own topic has to make such a one");
    }
    return {};
}

}  // namespace outbox::sns
