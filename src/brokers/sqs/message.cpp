#include "brokers/sqs/message.h"

#include "core/json_text.h"

namespace outbox::sqs {

std::string entry(const aws::Message& message) {
    std::string json = R"("MessageBody":)";
    append_json_string(message.body, json);
    if (!message.attributes.empty()) {
        std::string_view before = R"(,"MessageAttributes":{)";
        for (const auto& [name, value] : message.attributes) {
            json += before;
            append_json_string(name, json);
            json += R"(:{"DataType":)";
            append_json_string(aws::kAttributeType, json);
            json += R"(,"StringValue":)";
            append_json_string(value, json);
            json += '}';
            before = ",";
        }
        json += '}';
    }
    if (!message.group.empty()) {
        json += R"(,"MessageGroupId":)";
        append_json_string(message.group, json);
        json += R"(,"MessageDeduplicationId":)";
        append_json_string(message.deduplication_id, json);
    }
    return json;
}

aws::Call batch(std::string_view url, std::span<const std::string_view> entries) {
    aws::Call call{"SendMessageBatch", R"({"QueueUrl":)"};
    append_json_string(url, call.body);
    call.body += R"(,"Entries":[)";
    for (std::size_t i = 0; i < entries.size(); ++i) {
        call.body += i == 0 ? R"({"Id":")" : R"(,{"Id":")";
        call.body += std::to_string(i);
        call.body += "\",";
        call.body += entries[i];
        call.body += '}';
    }
    call.body += "]}";
    return call;
}

}  // namespace outbox::sqs
