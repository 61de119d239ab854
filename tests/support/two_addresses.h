#pragma once

#include <string>

namespace outbox::test {

/// While one lives, "localhost" has two addresses in this program: at the first a port answers no
/// packet, as behind a firewall, the second is 127.0.0.1. One at a time; what cannot be done throws
/// std::runtime_error.
class TwoAddresses {
  public:
    explicit TwoAddresses(int port);
    ~TwoAddresses();
    TwoAddresses(const TwoAddresses&) = delete;
    TwoAddresses& operator=(const TwoAddresses&) = delete;

  private:
    int listener_;
    int queued_;  // fills its backlog
};

}  // namespace outbox::test
