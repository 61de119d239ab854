#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

namespace outbox::runtime {

/// What `outbox import debezium` makes of a file.
struct DebeziumImport {
    struct LeftOut {
        std::size_t line = 0;
        std::string name;
        std::string why;  ///< And what to do in its place.
    };
    std::string toml;               ///< An outbox.toml.
    std::vector<LeftOut> left_out;  ///< In the order of the file.
};

/// Takes an application.properties of Debezium Server, or a connector of Kafka Connect, as
/// properties or as the JSON of its REST API. Errors: kConfigInvalid where it has no outbox event
/// router, or an option of it that Debezium would refuse, or that this format cannot be.
Result<DebeziumImport> import_debezium(std::string_view text);

}  // namespace outbox::runtime
