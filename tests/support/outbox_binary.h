#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/process.h"

namespace outbox::test {

// Runs `outbox` in a folder of its own, so that no outbox.toml is found by chance.
class OutboxBinary {
  public:
    using Arguments = std::vector<std::string>;
    using Variables = std::map<std::string, std::string>;

    // Runs a command to its end.
    Finished run(Arguments arguments, Variables variables = {});

    // Starts `outbox relay`.
    Process start_relay(Arguments arguments, Variables variables = {});

    // Writes a file into the folder, and gives its name there.
    std::filesystem::path write(const std::string& name, const std::string& text);
    std::filesystem::path file(const std::string& name) const { return folder_ / name; }

  private:
    ProcessOptions options(Arguments arguments, Variables variables) const;
    TemporaryFolder folder_{"cli"};
};

// A port of 127.0.0.1 that is in use while this lives: by us, or by whoever has had it for a
// minute.
class TakenPort {
  public:
    explicit TakenPort(int port);  // 0: any
    ~TakenPort();
    TakenPort(const TakenPort&) = delete;
    TakenPort& operator=(const TakenPort&) = delete;
    std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  private:
    int socket_;
    int port_;
};

}  // namespace outbox::test
