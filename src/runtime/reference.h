#pragma once

#include <string>

#include "backend/broker.h"

namespace outbox::runtime {

/// docs/reference/options.md: every command, option, route key and exit code.
[[nodiscard]] std::string options_page();

/// The table of a destination's options.
[[nodiscard]] std::string broker_options(const Broker& broker);

/// docs/brokers/NAME.md with that table, which stands there between two comments; "": they are
/// missing.
[[nodiscard]] std::string with_broker_options(const Broker& broker, std::string page);

/// docs/reference/errors.md: every error code.
[[nodiscard]] std::string errors_page();

/// docs/reference/metrics.md: every metric of the relay.
[[nodiscard]] std::string metrics_page();

/// outbox.example.toml: every key that the file takes, with its default, commented out.
[[nodiscard]] std::string example_file();

}  // namespace outbox::runtime
