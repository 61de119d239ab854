#include "brokers/sns/config.h"

#include "brokers/sns/answers.h"
#include "brokers/sns/errors.h"
#include "brokers/sns/message.h"
#include "brokers/sns/topic_name.h"

namespace outbox::sns {
namespace {

net::HttpHeaders headers(std::string_view /*action*/) {
    return {{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}};
}

std::string known_arn(const SnsConfig& config, std::string_view topic) {
    if (is_arn(topic)) return std::string(topic);
    return config.account.empty() ? std::string() : arn_of(config.region, config.account, topic);
}

aws::Call list() {
    return call("ListTopics");
}

aws::Call ask_arn(const SnsConfig& /*config*/, std::string_view /*topic*/) {
    return list();
}

// Those that are named are of the key's own account, whatever their names.
std::string read_arn(std::string_view topic, std::string_view body) {
    const auto arns = read_arns(body);
    if (!arns || arns->empty() || !check_topic(arns->front()).ok()) return {};
    return arns->front().substr(0, arns->front().rfind(':') + 1).append(topic);
}

}  // namespace

const aws::Service& service() {
    static const aws::Service sns{
        .product = {"SNS", "sns.", "sns+http", "sns", "sns://sns.eu-central-1.amazonaws.com", 4566,
                    443},
        .name = "sns",
        .topic = "topic",
        .topics = "topics",
        .max_message_bytes = std::size_t{1} << 20,
        // By default a topic takes no larger batch.
        .max_batch_bytes = std::size_t{256} << 10,
        .faults = faults(),
        .headers = headers,
        .read_fault = read_fault,
        .known_address = known_arn,
        .ask_address = ask_arn,
        .read_address = read_arn,
        .no_address = {"NotFound",
                       "the account of the key has no topic at all, or another service answers"},
        .entry = entry,
        .batch = batch,
        .read_batch = read_batch,
        .list = list,
        .read_list = read_arns,
    };
    return sns;
}

Result<SnsConfig> make_config(std::string_view url,
                              const std::map<std::string, std::string>& options) {
    return aws::make_config(service(), url, options);
}

}  // namespace outbox::sns
