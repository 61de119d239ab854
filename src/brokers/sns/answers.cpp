#include "brokers/sns/answers.h"

#include <initializer_list>
#include <pugixml.hpp>

#include "core/utf8.h"
#include "net/server_access.h"

namespace outbox::sns {
namespace {

using aws::Fault;

// An empty document where it is no XML. Neither entities of a document type nor anything outside of
// the text are looked at.
pugi::xml_document parse(std::string_view text) {
    pugi::xml_document document;
    if (!document.load_buffer(text.data(), text.size(), pugi::parse_default, pugi::encoding_utf8)) {
        document.reset();
    }
    return document;
}

pugi::xml_node part_of(pugi::xml_node node, std::initializer_list<const char*> path) {
    for (const char* const name : path) node = node.child(name);
    return node;
}

std::string text_in(const pugi::xml_node& node, const char* name) {
    return to_printable(node.child_value(name));
}

// "Invalid parameter: Message too long", "Invalid parameter: TopicArn Reason: ..."
std::string name_of(std::string code, std::string_view text) {
    if (code != "InvalidParameter") return code;
    if (text.find("too long") != std::string_view::npos) return "TOO LONG";
    return text.find("TopicArn") != std::string_view::npos ? "NO ARN" : code;
}

}  // namespace

Fault read_fault(int status, std::string_view body) {
    const auto document = parse(body);
    const auto error = part_of(document, {"ErrorResponse", "Error"});
    std::string name = text_in(error, "Code");
    std::string text = text_in(error, "Message");
    if (text.empty())
        text = name.empty() ? "it answers with status " + std::to_string(status) : name;
    if (name.empty()) name = aws::fault_name_of(status);
    return {name_of(std::move(name), text), text, !aws::is_servers(status)};
}

std::vector<std::optional<Fault>> read_batch(std::string_view body, std::size_t count) {
    std::vector<std::optional<Fault>> all(
        count, Fault{"UNNAMED", "the answer does not name the message", false});
    const auto place_of = [&](const pugi::xml_node& entry) -> std::optional<Fault>* {
        std::size_t place = 0;
        if (count == 0 ||
            !net::read_number<std::size_t>(entry.child_value("Id"), 0, count - 1, place)) {
            return nullptr;
        }
        return &all[place];
    };
    const auto document = parse(body);
    const auto result = part_of(document, {"PublishBatchResponse", "PublishBatchResult"});
    for (const auto& entry : result.child("Successful").children("member")) {
        if (auto* place = place_of(entry)) place->reset();
    }
    for (const auto& entry : result.child("Failed").children("member")) {
        auto* place = place_of(entry);
        if (place == nullptr) continue;
        std::string name = text_in(entry, "Code");
        std::string text = text_in(entry, "Message");
        if (text.empty()) text = name;
        name = name_of(std::move(name), text);
        const bool ours = std::string_view(entry.child_value("SenderFault")) != "false";
        *place = Fault{std::move(name), std::move(text), ours};
    }
    return all;
}

std::optional<std::vector<std::string>> read_arns(std::string_view body) {
    const auto document = parse(body);
    const auto result = part_of(document, {"ListTopicsResponse", "ListTopicsResult"});
    if (!result) return std::nullopt;
    std::vector<std::string> arns;
    for (const auto& topic : result.child("Topics").children("member")) {
        std::string arn = text_in(topic, "TopicArn");
        if (!arn.empty()) arns.push_back(std::move(arn));
    }
    return arns;
}

}  // namespace outbox::sns
