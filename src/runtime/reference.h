#pragma once

#include <string>

namespace outbox::runtime {

/// docs/reference/options.md: every command, option, route key and exit code.
[[nodiscard]] std::string options_page();

/// docs/reference/errors.md: every error code.
[[nodiscard]] std::string errors_page();

/// docs/reference/metrics.md: every metric of the relay.
[[nodiscard]] std::string metrics_page();

/// outbox.example.toml: every key that the file takes, with its default, commented out.
[[nodiscard]] std::string example_file();

}  // namespace outbox::runtime
