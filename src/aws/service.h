#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aws/faults.h"
#include "net/server_access.h"
#include "net/sigv4.h"

namespace outbox::aws {

struct Config;
struct Message;

/// A request: its action and its body.
struct Call {
    std::string_view action;
    std::string body;
};

/// What is a service's own: how it is spoken to and what it takes. One of each, which lasts.
struct Service {
    net::Product product;
    std::string_view name;    ///< "sqs": what requests are signed for and its hosts begin with.
    std::string_view topic;   ///< What a topic is there: "queue".
    std::string_view topics;  ///< "queues"
    std::size_t max_message_bytes = 0;  ///< Attributes included.
    std::size_t max_batch_bytes = 0;    ///< Of several messages.
    std::span<const FaultRow> faults;   ///< Its own, before those of all.

    /// What a request has beside its signature.
    net::HttpHeaders (*headers)(std::string_view action) = nullptr;
    /// What an answer that is no success says; `status` is that of HTTP.
    Fault (*read_fault)(int status, std::string_view body) = nullptr;

    /// By which the service knows a topic; empty: it has to be asked for.
    std::string (*known_address)(const Config& config, std::string_view topic) = nullptr;
    Call (*ask_address)(const Config& config, std::string_view topic) = nullptr;
    /// Of the answer; empty: there is none in it, which is the fault `no_address`.
    std::string (*read_address)(std::string_view topic, std::string_view body) = nullptr;
    Fault no_address;

    /// A message as it stands in a batch, and the batch of several.
    std::string (*entry)(const Message& message) = nullptr;
    Call (*batch)(std::string_view address, std::span<const std::string_view> entries) = nullptr;
    /// What became of each of `count` entries with the ids "0", "1", ...; nothing: it was taken.
    std::vector<std::optional<Fault>> (*read_batch)(std::string_view body,
                                                    std::size_t count) = nullptr;

    /// Which topics there are, by URL or ARN; nothing: the answer is no list of them.
    Call (*list)() = nullptr;
    std::optional<std::vector<std::string>> (*read_list)(std::string_view body) = nullptr;
};

}  // namespace outbox::aws
