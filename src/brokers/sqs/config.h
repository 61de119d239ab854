#pragma once

#include <map>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "aws/config.h"

namespace outbox::sqs {

using SqsConfig = aws::Config;

/// SQS, by its JSON protocol ("Making query API requests using AWS JSON protocol").
[[nodiscard]] const aws::Service& service();

/// From `sqs://sqs.REGION.amazonaws.com` (`sqs+http://host:port` in clear) and options, as
/// `aws::make_config` reads them.
Result<SqsConfig> make_config(std::string_view url,
                              const std::map<std::string, std::string>& options);

}  // namespace outbox::sqs
