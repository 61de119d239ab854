#pragma once

#include <string>

#include <outbox/result.h>

namespace outbox::webhook {

/// Whether a PEM file has certificates of authorities that can be read; an empty path: the system's
/// are meant. Errors: kConfigInvalid/stop.
[[nodiscard]] Status check_ca_file(const std::string& path);

}  // namespace outbox::webhook
