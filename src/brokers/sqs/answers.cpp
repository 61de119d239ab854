#include "brokers/sqs/answers.h"

#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "net/server_access.h"

namespace outbox::sqs {
namespace {

using aws::Fault;
using nlohmann::json;

json parse(std::string_view text) {
    return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

const json& part_of(const json& object, const char* name) {
    static const json nothing;
    if (!object.is_object()) return nothing;
    const auto found = object.find(name);
    return found == object.end() ? nothing : *found;
}

std::string text_in(const json& object, const char* name) {
    const json& part = part_of(object, name);
    return part.is_string() ? to_printable(part.get_ref<const std::string&>()) : std::string();
}

// "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"
std::string short_name(std::string name) {
    constexpr std::string_view kOld = "AWS.SimpleQueueService.";
    name.erase(0, name.rfind('#') + 1);
    if (name.starts_with(kOld)) name.erase(0, kOld.size());
    return name == "NonExistentQueue" ? "QueueDoesNotExist" : name;
}

// Under the code InvalidParameterValue or InvalidAttributeValue: "One or more parameters are
// invalid. Reason: Message must be shorter than 262144 bytes."; ElasticMQ: "MessageTooLong".
bool is_about_size(std::string_view text) {
    return text.find("Message must be shorter than") != std::string_view::npos ||
           text == "MessageTooLong";
}

}  // namespace

Fault read_fault(int status, std::string_view body) {
    const json answer = parse(body);
    std::string name = short_name(text_in(answer, "__type"));
    std::string text = text_in(answer, "message");
    if (text.empty()) text = text_in(answer, "Message");
    if (text.empty())
        text = name.empty() ? "it answers with status " + std::to_string(status) : name;
    if (name.empty()) name = aws::fault_name_of(status);
    if (is_about_size(text)) name = "TOO LONG";
    return {std::move(name), std::move(text), !aws::is_servers(status)};
}

std::vector<std::optional<Fault>> read_batch(std::string_view body, std::size_t count) {
    std::vector<std::optional<Fault>> all(
        count, Fault{"UNNAMED", "the answer does not name the message", false});
    const auto place_of = [&](const json& entry) -> std::optional<Fault>* {
        std::size_t place = 0;
        if (count == 0 ||
            !net::read_number<std::size_t>(text_in(entry, "Id"), 0, count - 1, place)) {
            return nullptr;
        }
        return &all[place];
    };
    const json answer = parse(body);
    for (const json& entry : part_of(answer, "Successful")) {
        if (auto* place = place_of(entry)) place->reset();
    }
    for (const json& entry : part_of(answer, "Failed")) {
        auto* place = place_of(entry);
        if (place == nullptr) continue;
        std::string name = short_name(text_in(entry, "Code"));
        std::string text = text_in(entry, "Message");
        if (text.empty()) text = name;
        if (is_about_size(text)) name = "TOO LONG";
        *place = Fault{std::move(name), std::move(text), part_of(entry, "SenderFault") != false};
    }
    return all;
}

std::string read_queue_url(std::string_view body) {
    return text_in(parse(body), "QueueUrl");
}

std::optional<std::vector<std::string>> read_queue_urls(std::string_view body) {
    const json answer = parse(body);
    if (!answer.is_object()) return std::nullopt;
    std::vector<std::string> urls;
    for (const json& url : part_of(answer, "QueueUrls")) {
        if (url.is_string()) urls.push_back(to_printable(url.get_ref<const std::string&>()));
    }
    return urls;
}

}  // namespace outbox::sqs
