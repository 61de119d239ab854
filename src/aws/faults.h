#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <outbox/error.h>

namespace outbox::aws {

struct Service;

/// What a service or the way to it reports, in its own words.
struct Fault {
    /// What the tables know it by: a code of the service ("QueueDoesNotExist"), or what happened to
    /// the request ("TLS").
    std::string name;
    std::string text;
    bool ours = true;    ///< The sender's, by what the service says; else the service's.
    bool whole = false;  ///< It was said of a request, and of no message in it.
};

/// What a fault is one of.
enum class Scope : std::uint8_t {
    kService,  ///< All that goes there.
    kTopic,    ///< One topic, while others may answer.
    kRecord    ///< One message.
};

/// What a fault is to us. In `remedy`, $NAME, $OPTION and $TOPIC stand for what the service calls
/// itself ("SQS"), its options ("sqs.") and a topic ("queue").
struct FaultRow {
    std::string_view name;
    ErrorCode code;
    Advice advice;
    Scope scope;
    std::string_view remedy;
};

/// What a fault is called whose answer names none.
[[nodiscard]] std::string fault_name_of(int http_status);

/// The service's own; false: the sender's.
[[nodiscard]] bool is_servers(int http_status);

/// True where a signature or the time in it was refused.
[[nodiscard]] bool is_about_time(const Fault& fault);

[[nodiscard]] Scope scope_of(const Service& service, const Fault& fault);

/// By the service's table, else that of all. `what` says what failed ("SQS at host:443, queue q").
[[nodiscard]] ErrorInfo to_error(const Service& service, const Fault& fault, std::string_view what);

}  // namespace outbox::aws
