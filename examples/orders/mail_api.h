#pragma once

#include <mutex>
#include <set>
#include <string>

#include "line_file.h"

namespace orders {

/// Stands for a mail provider outside: what it was given cannot be rolled back. It takes an
/// idempotency key and sends a mail once for each. A line of the file is a call:
/// {"idempotency_key","to","body","sent"}; `sent` is false for a key that it knew. Thread-safe.
class MailApi {
  public:
    /// An empty path: a provider that forgets. Throws std::runtime_error if the file cannot be
    /// used.
    explicit MailApi(const std::string& path);

    /// Throws std::runtime_error when the provider does not take it.
    void send(const std::string& idempotency_key, const std::string& to, const std::string& body);

  private:
    std::mutex mutex_;
    LineFile calls_;
    std::set<std::string> known_;
};

}  // namespace orders
