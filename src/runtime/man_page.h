#pragma once

#include <string>

namespace outbox::runtime {

/// packaging/man/outbox.1: every command, option, exit code and example, in the macros of man(7).
[[nodiscard]] std::string man_page();

}  // namespace outbox::runtime
