#pragma once

#include <filesystem>
#include <string>

namespace outbox::test {

// The logs of what runs for the current test, shown when something awaited does not happen.
// Thread-safe.
int register_log(std::string name, std::filesystem::path path);
void unregister_log(int registration);

// The last lines of one log, and of all that are registered.
std::string log_tail(const std::filesystem::path& path, int lines = 40);
std::string all_log_tails();

}  // namespace outbox::test
