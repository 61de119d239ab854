#include "claim/claim.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/ascii.h"
#include "core/json_text.h"
#include "core/utf8.h"
#include "net/sha256.h"

namespace outbox::claim {
namespace {

constexpr std::size_t kHashDigits = 64;
constexpr std::size_t kMaxReference = 4'096;

bool is_hash(std::string_view text) {
    return text.size() == kHashDigits && std::all_of(text.begin(), text.end(), [](char c) {
               return is_digit(c) || (c >= 'a' && c <= 'f');
           });
}

ErrorInfo invalid(std::string what) {
    return {ErrorCode::kInvalidEvent,
            Advice::kDeadLetter,
            {},
            "the message has the header claim-check, and " + std::move(what) +
                "; was it written by a route with claim_check?"};
}

std::string text_of(const nlohmann::json& headers, std::string_view name) {
    const auto found = headers.find(name);
    return found != headers.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::string_view Claim::name() const {
    const std::string_view whole(reference);
    return whole.substr(whole.rfind('/') + 1);
}

std::string_view Claim::store() const {
    return std::string_view(reference).substr(0, reference.size() - name().size() - 1);
}

std::string object_name(std::string_view source, std::string_view id, std::string_view sha256) {
    std::string text(source);
    text.append(1, '\0').append(id).append(1, '\0').append(sha256);
    return net::sha256_hex(text);
}

bool is_object_name(std::string_view text) {
    return is_hash(text);
}

std::string note_of(const Claim& claim) {
    std::string out = "{\"claim_check\":";
    append_json_string(claim.reference, out);
    out += ",\"size\":" + std::to_string(claim.size) + ",\"sha256\":\"" + claim.sha256 + "\"}";
    return out;
}

Result<std::optional<Claim>> read_claim(std::string_view headers_json) {
    const std::string quoted = "\"" + std::string(kReferenceHeader) + "\"";
    if (headers_json.find(quoted) == std::string_view::npos) return std::optional<Claim>();
    const auto headers = nlohmann::json::parse(headers_json, nullptr, false);
    if (!headers.is_object() || !headers.contains(kReferenceHeader)) return std::optional<Claim>();
    Claim claim{text_of(headers, kReferenceHeader), 0, text_of(headers, kHashHeader)};
    if (claim.reference.size() > kMaxReference || claim.reference.find('/') == std::string::npos ||
        !is_object_name(claim.name())) {
        return invalid("it names no object: " + to_printable(claim.reference.substr(0, 200)));
    }
    const std::string size = text_of(headers, kSizeHeader);
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), claim.size);
    if (size.empty() || error != std::errc() || end != size.data() + size.size()) {
        return invalid("claim-check-size is no number of bytes");
    }
    if (!is_hash(claim.sha256)) return invalid("claim-check-sha256 is no SHA-256");
    return std::optional<Claim>(std::move(claim));
}

Status verify(const Claim& claim, std::string_view bytes) {
    const auto altered = [&](const std::string& why) {
        return ErrorInfo{ErrorCode::kObjectAltered,
                         Advice::kDeadLetter,
                         {},
                         "the payload at " + to_printable(claim.reference) + " " + why +
                             ": something else than the relay writes there; put the payload back, "
                             "then retry the dead letter"};
    };
    if (bytes.size() != claim.size) {
        return altered("has " + std::to_string(bytes.size()) + " bytes, and its message says " +
                       std::to_string(claim.size));
    }
    if (net::sha256_hex(bytes) != claim.sha256) {
        return altered("has another SHA-256 than its message says");
    }
    return {};
}

}  // namespace outbox::claim
