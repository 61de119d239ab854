#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include <outbox/limits.h>
#include <outbox/result.h>

#include "aws/service.h"
#include "net/aws_credentials.h"
#include "net/server_access.h"

namespace outbox::aws {

/// User and password are the id and the secret of an access key.
struct Config : net::ServerAccess, net::AwsLogin {
    const Service* service = nullptr;  ///< Lasts longer.
    std::chrono::seconds connect_timeout{kConnectTimeoutS};
    std::string producer;  ///< Whose ids what is FIFO is to tell from others'.
    std::string region;    ///< That requests are signed for.
    std::string account;   ///< Whose topics are published to; empty: those of the key.

    std::size_t connections = 0;                    ///< At once, each with one batch.
    std::size_t max_message_bytes = 0;              ///< What the service takes at most.
    std::size_t max_records = 4'000;                ///< Without an answer at once.
    std::size_t max_bytes = std::size_t{32} << 20;  ///< Of these.
    std::chrono::milliseconds stuck_after{15'000};  ///< A request without an answer.
};

/// From `sqs://sqs.REGION.amazonaws.com` (`sqs+http://host:port` in clear) and options named
/// `sqs.<name>` or just the name, where "sqs" is the service's name; options may stand in the URL's
/// query, too. Errors: kConfigInvalid/stop.
Result<Config> make_config(const Service& service, std::string_view url,
                           const std::map<std::string, std::string>& options);

inline constexpr auto kOptions = all_options(
    std::array{
        BackendOption{.name = "region",
                      .help = "that requests are signed for; without it the host's, AWS_REGION or "
                              "AWS_DEFAULT_REGION"},
        BackendOption{.name = "account",
                      .help = "12 digits: whose queues or topics they are, where they are not the "
                              "key's own"},
        BackendOption{.name = "producer",
                      .help = "what FIFO queues and topics tell the ids of this route from others' "
                              "by; made of the database, the table, the tenants and the time when "
                              "the route began"},
        BackendOption{.name = "profile",
                      .help = "in the file of credentials; without it AWS_PROFILE or `default`"},
        BackendOption{.name = "credentials_file",
                      .type = OptionType::kPath,
                      .help = "of AWS' own tools; without it AWS_SHARED_CREDENTIALS_FILE or "
                              "`~/.aws/credentials`"},
        BackendOption{.name = "connections",
                      .type = OptionType::kInteger,
                      .fallback = "32",
                      .min = 1,
                      .max = 256,
                      .help = "at once, each with one batch of ten"},
    },
    net::kAccessOptions);

/// "SQS at host:443".
[[nodiscard]] std::string name_of_server(const Config& config);

/// What of the way there is in clear or unverified, with the remedy; or "".
std::string transport_weakness(const Config& config);

}  // namespace outbox::aws
