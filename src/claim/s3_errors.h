#pragma once

#include <string_view>

#include <outbox/error.h>

#include "claim/s3_answers.h"
#include "net/http_client.h"

namespace outbox::claim {

[[nodiscard]] S3Fault fault_of_http(const net::HttpFault& fault);

/// The one table from such faults to our errors. `what`: "object store s3://bucket/prefix".
[[nodiscard]] ErrorInfo to_error(const S3Fault& fault, std::string_view what);

}  // namespace outbox::claim
