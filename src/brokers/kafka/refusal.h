#pragma once

#include <string>
#include <string_view>

namespace outbox::kafka {

/// A connection to Kafka that was not made: what happened, and what to do about it.
struct Refusal {
    std::string text;
    std::string remedy;  ///< Empty: nothing is known beyond the error's name.
    std::string name;    ///< "_SSL" for what TLS refused, which librdkafka may call "_TRANSPORT".
};

/// Says in our words what librdkafka's do not. `name`, `text`: its error. `certificate_error`: what
/// OpenSSL said of the broker's certificate (X509_V_ERR_*), or 0; librdkafka calls each of them a
/// missing CA. `version`: librdkafka's, as `rd_kafka_version()` gives it.
[[nodiscard]] Refusal explain(std::string_view name, std::string_view text, int certificate_error,
                              int version);

/// What to do where librdkafka refuses its options, in words that do not lead there; may be empty.
[[nodiscard]] std::string_view options_remedy(std::string_view text);

}  // namespace outbox::kafka
