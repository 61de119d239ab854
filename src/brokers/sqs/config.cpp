#include "brokers/sqs/config.h"

#include "brokers/sqs/answers.h"
#include "brokers/sqs/errors.h"
#include "brokers/sqs/message.h"
#include "brokers/sqs/queue_name.h"
#include "core/json_text.h"

namespace outbox::sqs {
namespace {

constexpr std::string_view kTarget = "AmazonSQS.";

net::HttpHeaders headers(std::string_view action) {
    return {{"Content-Type", "application/x-amz-json-1.0"},
            {"X-Amz-Target", std::string(kTarget).append(action)}};
}

std::string known_url(const SqsConfig& /*config*/, std::string_view topic) {
    return is_queue_url(topic) ? std::string(topic) : std::string();
}

aws::Call ask_url(const SqsConfig& config, std::string_view topic) {
    aws::Call call{"GetQueueUrl", R"({"QueueName":)"};
    append_json_string(topic, call.body);
    if (!config.account.empty()) {
        call.body += R"(,"QueueOwnerAWSAccountId":)";
        append_json_string(config.account, call.body);
    }
    call.body += '}';
    return call;
}

std::string read_url(std::string_view /*topic*/, std::string_view body) {
    return read_queue_url(body);
}

aws::Call list() {
    return {"ListQueues", R"({"MaxResults":1000})"};
}

}  // namespace

const aws::Service& service() {
    static const aws::Service sqs{
        .product = {"SQS", "sqs.", "sqs+http", "sqs", "sqs://sqs.eu-central-1.amazonaws.com", 9324,
                    443},
        .name = "sqs",
        .topic = "queue",
        .topics = "queues",
        .max_message_bytes = std::size_t{1} << 20,
        // Queues made before the limit rose to 1 MiB, and other servers, take no larger batch.
        .max_batch_bytes = std::size_t{256} << 10,
        .faults = faults(),
        .headers = headers,
        .read_fault = read_fault,
        .known_address = known_url,
        .ask_address = ask_url,
        .read_address = read_url,
        .no_address = {"NO SERVICE", "it names no queue", false},
        .entry = entry,
        .batch = batch,
        .read_batch = read_batch,
        .list = list,
        .read_list = read_queue_urls,
    };
    return sqs;
}

Result<SqsConfig> make_config(std::string_view url,
                              const std::map<std::string, std::string>& options) {
    return aws::make_config(service(), url, options);
}

}  // namespace outbox::sqs
