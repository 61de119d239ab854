#include "core/fence.h"

#include <algorithm>
#include <unordered_set>

#include "core/base64.h"

namespace outbox {
namespace {

constexpr std::string_view kFencePrefix = "obf1.";
constexpr std::size_t kFenceChecksumBytes = 4;
constexpr std::size_t kFenceIdBytes = 16;
constexpr std::size_t kFenceIdText = 36;
constexpr std::string_view kFenceDigits = "0123456789abcdef";

bool is_dash_place(std::size_t at) {
    return at == 8 || at == 13 || at == 18 || at == 23;
}

[[noreturn]] void refuse_fence(const std::string& message) {
    throw Error(ErrorCode::kInvalidEvent, Advice::kStop, message);
}

ErrorInfo no_fence(const std::string& why) {
    return {ErrorCode::kInvalidEvent, Advice::kDeadLetter, "", "this is no fence token: " + why};
}

// The 16 bytes of "018f2d3c-...", in lower case as databases and messages have it.
void append_fence_id(const std::string& id, std::string& out) {
    unsigned held = 0;
    std::size_t digits = 0;
    bool sound = id.size() == kFenceIdText;
    for (std::size_t at = 0; sound && at < id.size(); ++at) {
        if (is_dash_place(at)) {
            sound = id[at] == '-';
            continue;
        }
        const auto digit = kFenceDigits.find(id[at]);
        sound = digit != std::string_view::npos;
        held = held << 4U | static_cast<unsigned>(digit & 0xfU);
        if (++digits % 2 == 0) out += static_cast<char>(held & 0xffU);
    }
    if (!sound) {
        refuse_fence("a fence token holds UUIDs in lower case, and '" + id +
                     "' is none: leave the event's id to outbox, or give such a one");
    }
}

std::string text_of_fence_id(std::string_view bytes) {
    std::string id;
    for (const char byte : bytes) {
        if (is_dash_place(id.size())) id += '-';
        id += kFenceDigits[static_cast<unsigned char>(byte) >> 4U];
        id += kFenceDigits[static_cast<unsigned char>(byte) & 0xfU];
    }
    return id;
}

std::string checksum_of_fence(std::string_view ids) {
    const std::uint32_t sum = adler32(ids);
    std::string out;
    for (const unsigned shift : {24U, 16U, 8U, 0U}) out += static_cast<char>(sum >> shift & 0xffU);
    return out;
}

}  // namespace

std::uint32_t adler32(std::string_view bytes) {
    constexpr std::uint32_t kModulus = 65'521;
    std::uint32_t low = 1;
    std::uint32_t high = 0;
    for (const char byte : bytes) {
        low = (low + static_cast<unsigned char>(byte)) % kModulus;
        high = (high + low) % kModulus;
    }
    return high << 16U | low;
}

std::string fence_token(std::span<const std::string> event_ids) {
    std::unordered_set<std::string_view> known;
    std::string ids;
    for (const std::string& id : event_ids) {
        if (known.insert(id).second) append_fence_id(id, ids);
    }
    if (known.size() > kMaxFencedEvents) {
        refuse_fence("a fence token holds up to " + std::to_string(kMaxFencedEvents) +
                     " events, and these are " + std::to_string(known.size()) +
                     ": take the ids of those that the reader looks for, or make several tokens");
    }
    std::string body = base64_encode(checksum_of_fence(ids) + ids);
    std::replace(body.begin(), body.end(), '+', '-');
    std::replace(body.begin(), body.end(), '/', '_');
    body.resize(std::min(body.find('='), body.size()));
    return std::string(kFencePrefix) + body;
}

Result<std::vector<std::string>> parse_fence(std::string_view token) {
    constexpr std::size_t kMostBytes = kFenceChecksumBytes + kMaxFencedEvents * kFenceIdBytes;
    if (!token.starts_with(kFencePrefix)) {
        return no_fence("it does not begin with " + std::string(kFencePrefix));
    }
    std::string body(token.substr(kFencePrefix.size()));
    if (body.size() > kMostBytes / 3 * 4 + 4) {
        return no_fence("it is longer than one of " + std::to_string(kMaxFencedEvents) +
                        " events can be");
    }
    if (body.find_first_of("+/=") != std::string::npos) return no_fence("it is not base64url");
    std::replace(body.begin(), body.end(), '-', '+');
    std::replace(body.begin(), body.end(), '_', '/');
    body.append((4 - body.size() % 4) % 4, '=');
    const auto bytes = base64_decode(body);
    if (!bytes) return no_fence("it is not base64url");
    if (bytes->size() < kFenceChecksumBytes || bytes->size() > kMostBytes ||
        bytes->size() % kFenceIdBytes != kFenceChecksumBytes) {
        return no_fence("it was cut, or something was added to it");
    }
    const std::string_view ids = std::string_view(*bytes).substr(kFenceChecksumBytes);
    if (!bytes->starts_with(checksum_of_fence(ids))) {
        return no_fence("its checksum is wrong, so that it was changed on its way");
    }
    std::vector<std::string> out;
    for (std::size_t at = 0; at < ids.size(); at += kFenceIdBytes) {
        out.push_back(text_of_fence_id(ids.substr(at, kFenceIdBytes)));
    }
    return out;
}

std::vector<std::string> fence_ids(std::string_view token) {
    return parse_fence(token).value_or_throw();
}

}  // namespace outbox
