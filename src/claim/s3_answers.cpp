#include "claim/s3_answers.h"

#include "core/ascii.h"
#include "core/redact.h"
#include "core/utf8.h"
#include "net/http_status.h"

namespace outbox::claim {
namespace {

constexpr std::size_t kMostText = 300;

// What is between <tag> and </tag> at its first place. The answers of S3 that tell errors are flat,
// and what is wanted of them are two short texts.
std::string element(std::string_view body, std::string_view tag) {
    const std::string open = "<" + std::string(tag) + ">";
    const std::size_t begin = body.find(open);
    if (begin == std::string_view::npos) return {};
    body.remove_prefix(begin + open.size());
    // Before it is cut: half of a secret would be known for one no longer.
    return to_printable(redact(body.substr(0, body.find('<'))).substr(0, kMostText));
}

std::string name_of_status(int status, bool is_s3) {
    if (status == net::http_status::kTooManyRequests) return "SlowDown";
    if (status >= net::http_status::kServersFault) return "ServiceUnavailable";
    // Said by what stands before the store: nobody knows what that takes of the others.
    if (!is_s3) return status == net::http_status::kContentTooLarge ? "PROXY LIMIT" : "NO S3";
    if (status == net::http_status::kContentTooLarge) return "EntityTooLarge";
    if (status == net::http_status::kForbidden) return "AccessDenied";
    return status == net::http_status::kNotFound ? "NoSuchKey" : "UNNAMED";
}

}  // namespace

S3Fault read_s3_fault(int status, std::string_view body) {
    S3Fault fault{element(body, "Code"), element(body, "Message"), status};
    const bool is_s3 = body.find("<Error>") != std::string_view::npos;
    if (!is_s3 || fault.name.empty()) fault.name = name_of_status(status, is_s3);
    if (fault.text.empty()) fault.text = "HTTP status " + std::to_string(status);
    return fault;
}

std::optional<S3Fault> read_s3_object(int status, const S3Headers& headers, std::string_view body) {
    if (status != net::http_status::kOk) return read_s3_fault(status, body);
    // As the relay wrote it, or as S3 says of what was copied without a type.
    const bool is_object = headers.content_type.empty() ||
                           begins_with_word(headers.content_type, "application/octet-stream") ||
                           begins_with_word(headers.content_type, "binary/octet-stream");
    if (!is_object || headers.etag.empty() || headers.etag.starts_with("W/")) {
        return S3Fault{"NO S3",
                       "HTTP status 200 and a page in place of the object, of type '" +
                           to_printable(headers.content_type.substr(0, kMostText)) + "'",
                       status};
    }
    if (!headers.tells_its_end) {
        return S3Fault{"NO S3", "HTTP status 200 and not how long the object is", status};
    }
    return std::nullopt;
}

std::optional<S3Fault> read_s3_stored(int status, std::string_view etag, std::string_view body) {
    if (status != net::http_status::kOk) {
        S3Fault fault = read_s3_fault(status, body);
        // Nothing has to be there before it is stored: what is missing is the bucket.
        if (fault.name == "NoSuchKey") fault.name = "NoSuchBucket";
        return fault;
    }
    if (etag.empty() || !body.empty()) {
        return S3Fault{"NO S3", "HTTP status 200 and no word of an object that was stored", status};
    }
    return std::nullopt;
}

}  // namespace outbox::claim
