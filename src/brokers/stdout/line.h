#pragma once

#include <string>

#include <outbox/spi/sink.h>

namespace outbox::stdout_ {

/// Appends the record as one JSON object and a line feed; README.md says what each field holds.
void append_line(const spi::Record& record, std::string& out);

}  // namespace outbox::stdout_
