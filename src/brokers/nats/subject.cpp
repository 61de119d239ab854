#include "brokers/nats/subject.h"

#include <algorithm>

namespace outbox::nats {
namespace {

constexpr unsigned char kDelete = 0x7F;

bool is_plain(unsigned char c) {
    return c > ' ' && c != kDelete &&
           std::string_view(".*>$%").find(static_cast<char>(c)) == std::string_view::npos;
}

Status refused(std::string_view subject, std::string_view why) {
    return {ErrorCode::kTopicInvalid, Advice::kDeadLetter,
            "topic '" + std::string(subject) + "' is no subject of NATS: " + std::string(why)};
}

}  // namespace

std::string encode_token(std::string_view value) {
    if (value.empty()) return "%";
    std::string token;
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        if (is_plain(byte)) {
            token += c;
            continue;
        }
        token += '%';
        token += "0123456789ABCDEF"[byte >> 4U];
        token += "0123456789ABCDEF"[byte & 0xFU];
    }
    return token;
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
