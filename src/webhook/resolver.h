#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "webhook/address.h"

namespace outbox::webhook {

/// Why a host has no address.
struct NoAddress {
    enum class Whose : std::uint8_t {
        kHost,    ///< The name servers say that it has none.
        kNobody,  ///< None of them answers: its own or ours.
        kOurs     ///< The resolver of this machine fails by itself.
    };
    Whose whose = Whose::kHost;
    std::string why;
};

/// The addresses of a host, in the order in which they are to be tried; may block. None: `no`
/// says it.
using Lookup = std::function<std::vector<Address>(const std::string& host, NoAddress& no)>;
/// By the system's resolver: /etc/hosts, DNS.
[[nodiscard]] std::vector<Address> system_lookup(const std::string& host, NoAddress& no);

struct ResolverOptions {
    /// Lookups at once of hosts that were answered the last time, and so many of others; one that
    /// takes longer than a fifth of the time counts no more.
    std::size_t max_threads = 16;
    std::size_t max_hanging = 128;             ///< Lookups at once of each, whatever they take.
    std::chrono::milliseconds timeout{5'000};  ///< From `start` on, the wait for a thread included.
};

/// What became of the lookup `token`; each has one.
struct Resolved {
    std::uint64_t token = 0;
    std::vector<Address> addresses;
    NoAddress no;  ///< Where there are none.
};

/// Looks hosts up beside the thread that asks, so that a name server that does not answer keeps
/// nobody but those who ask it: hosts that were answered have threads of their own. Who waited for
/// a thread in vain is told that it is ours. Nothing is kept: each `start` is a lookup, as a name
/// may lead elsewhere the next time, except that those for one host at one time share one. Used by
/// one thread.
class Resolver {
  public:
    explicit Resolver(const ResolverOptions& options = {}, Lookup lookup = system_lookup);
    /// Does not wait for lookups under way.
    ~Resolver();
    Resolver(const Resolver&) = delete;
    Resolver& operator=(const Resolver&) = delete;

    void start(std::uint64_t token, const std::string& host);
    /// No answer comes for it any more.
    void cancel(std::uint64_t token);
    /// Appends the answers that are known, also of those whose time is over. Does not wait.
    void take(std::vector<Resolved>& out);
    /// Can be read while answers are there.
    [[nodiscard]] int wake_fd() const;
    /// When it has to `take` at the latest; far away where nothing is under way.
    [[nodiscard]] std::chrono::steady_clock::time_point next_end() const;

  private:
    struct Shared;
    struct Asked;
    enum LaneName : std::size_t { kAnswered, kOthers, kLanes };
    void begin_waiting();
    void drop_unasked();
    void learn(const std::string& host, bool answered);

    const ResolverOptions options_;
    // Shared with the threads: one that hangs in a lookup outlives its resolver.
    const std::shared_ptr<Shared> shared_;
    std::vector<Asked> asked_;                  // oldest first
    std::unordered_set<std::string> answered_;  // hosts that were, the last time
};

/// The answers for hosts in their order; their tokens are the indexes. Blocks until each has one,
/// up to the timeout.
[[nodiscard]] std::vector<Resolved> resolve_all(std::span<const std::string> hosts,
                                                const ResolverOptions& options = {},
                                                Lookup lookup = system_lookup);

}  // namespace outbox::webhook
