#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace outbox::claim {

/// What S3 or the way to it reports.
struct S3Fault {
    std::string name;  ///< A code of S3 ("NoSuchKey"), or what happened to the request ("TLS").
    std::string text;  ///< Printable.
    int status = 0;    ///< Of HTTP; 0: there was no answer.
};

/// Out of an answer that is no success.
[[nodiscard]] S3Fault read_s3_fault(int status, std::string_view body);

/// What S3 says of the body of an answer.
struct S3Headers {
    std::string_view etag;
    std::string_view content_type;
    bool tells_its_end = false;  ///< By Content-Length, or in chunks.
};

/// Why the answer to GET brings no object; nothing: it does. A page of whatever stands before the
/// store is none.
[[nodiscard]] std::optional<S3Fault> read_s3_object(int status, const S3Headers& headers,
                                                    std::string_view body);

/// Why the answer to PUT, with that ETag, does not say that the object is stored; nothing: it does.
[[nodiscard]] std::optional<S3Fault> read_s3_stored(int status, std::string_view etag,
                                                    std::string_view body);

}  // namespace outbox::claim
