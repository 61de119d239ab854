#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <outbox/result.h>

namespace outbox::admin {

/// An address that is listened on, also while no server serves it: who connects waits.
class Listener {
  public:
    /// Port 0: any free one. Resolves a name: may block. Errors: kConfigInvalid when the address
    /// is in use, not ours, or not an address.
    static Result<std::unique_ptr<Listener>> open(const std::string& host, std::uint16_t port);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    [[nodiscard]] int descriptor() const { return descriptor_; }
    [[nodiscard]] bool is_v6() const { return is_v6_; }

  private:
    Listener(int descriptor, bool is_v6) : descriptor_(descriptor), is_v6_(is_v6) {}
    int descriptor_;
    bool is_v6_;
};

}  // namespace outbox::admin
