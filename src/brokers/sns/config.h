#pragma once

#include <map>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "aws/config.h"

namespace outbox::sns {

using SnsConfig = aws::Config;

/// SNS, by the Query protocol ("Query requests" in AWS's references), which answers in XML.
[[nodiscard]] const aws::Service& service();

/// From `sns://sns.REGION.amazonaws.com` (`sns+http://host:port` in clear) and options, as
/// `aws::make_config` reads them.
Result<SnsConfig> make_config(std::string_view url,
                              const std::map<std::string, std::string>& options);

}  // namespace outbox::sns
