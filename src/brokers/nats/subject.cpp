#include "brokers/nats/subject.h"

#include "core/url.h"

namespace outbox::nats {
namespace {

Status refused(std::string_view subject, std::string_view why) {
    return {ErrorCode::kTopicInvalid, Advice::kDeadLetter,
            "topic '" + std::string(subject) + "' is no subject of NATS: " + std::string(why)};
}

}  // namespace

std::string encode_token(std::string_view value) {
    return value.empty() ? "%" : percent_encode(value, ".*>$%");
}

Status check_subject(std::string_view subject) {
    if (subject.starts_with('$')) {
        return refused(subject, "what begins with $ is the server's own");
    }
    if (subject.find_first_of("*>") != std::string_view::npos) {
        return refused(subject, "* and > are wildcards, which nothing can be published to");
    }
    if (subject.empty() || subject.front() == '.' || subject.back() == '.' ||
        subject.find("..") != std::string_view::npos) {
        return refused(subject, "a part between two dots is empty");
    }
    return {};
}

}  // namespace outbox::nats
