#include "brokers/nats/answers.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/utf8.h"

namespace outbox::nats {
namespace {

using nlohmann::json;

json parse(std::string_view text) {
    return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::int64_t number_in(const json& object, const char* name) {
    if (!object.is_object()) return 0;
    const auto found = object.find(name);
    return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::string text_in(const json& object, const char* name) {
    if (!object.is_object()) return {};
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

const json& part_of(const json& object, const char* name) {
    static const json nothing;
    if (!object.is_object()) return nothing;
    const auto found = object.find(name);
    return found == object.end() ? nothing : *found;
}

StreamInfo stream_of(const json& info) {
    const json& config = part_of(info, "config");
    StreamInfo stream;
    stream.name = text_in(config, "name");
    stream.duplicate_window = std::chrono::nanoseconds(number_in(config, "duplicate_window"));
    stream.no_ack = part_of(config, "no_ack") == true;
    for (const json& subject : part_of(config, "subjects")) {
        if (subject.is_string()) stream.subjects.push_back(subject.get<std::string>());
    }
    return stream;
}

}  // namespace

std::optional<Fault> fault_of_answer(std::string_view text) {
    // A stream may be named so that it looks like one.
    const bool suspect = text.find("\"error\"") != std::string_view::npos;
    if (!suspect && text.find("\"seq\"") != std::string_view::npos) return std::nullopt;
    const json answer = parse(text);
    if (!answer.is_object()) return Fault{"ENDED", "the answer is none of JetStream's"};
    const json& error = part_of(answer, "error");
    if (error.is_null()) return std::nullopt;
    return Fault{std::to_string(number_in(error, "err_code")),
                 to_printable(text_in(error, "description"))};
}

std::vector<StreamInfo> read_streams(std::string_view text) {
    const json answer = parse(text);
    std::vector<StreamInfo> streams;
    for (const json& one : part_of(answer, "streams")) streams.push_back(stream_of(one));
    if (part_of(answer, "config").is_object()) streams.push_back(stream_of(answer));
    std::erase_if(streams, [](const StreamInfo& stream) { return stream.name.empty(); });
    return streams;
}

std::optional<ConsumerInfo> read_consumer(std::string_view text) {
    const json answer = parse(text);
    const json& config = part_of(answer, "config");
    if (!config.is_object()) return std::nullopt;
    ConsumerInfo info;
    info.pending = number_in(answer, "num_pending");
    info.ack_pending = number_in(answer, "num_ack_pending");
    info.waiting = number_in(answer, "num_waiting");
    info.ack_wait = std::chrono::nanoseconds(number_in(config, "ack_wait"));
    info.ack_wait_min = info.ack_wait;
    for (const json& wait : part_of(config, "backoff")) {
        if (!wait.is_number_integer()) continue;
        const std::chrono::nanoseconds one(wait.get<std::int64_t>());
        info.ack_wait = std::max(info.ack_wait, one);
        info.ack_wait_min = std::min(info.ack_wait_min, one);
    }
    info.ack_policy = text_in(config, "ack_policy");
    info.created = text_in(answer, "created");
    const json& delivered = part_of(answer, "delivered");
    if (delivered.is_object()) {
        info.given = static_cast<std::uint64_t>(number_in(delivered, "consumer_seq"));
    }
    info.push = !text_in(config, "deliver_subject").empty();
    return info;
}

}  // namespace outbox::nats
