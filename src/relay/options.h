#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "codec/raw.h"
#include "core/retry_policy.h"
#include "core/routing.h"
#include "tracing/span_queue.h"

namespace outbox::relay {

/// What becomes of an event that no route takes.
enum class Unmatched : std::uint8_t {
    kDeadLetter,  ///< One of the first route, which goes to those that take it when it is retried.
    kFinish,      ///< Nobody wants it.
    kStop,        ///< The relay ends before it.
};

/// Limits and waits of a relay. Those without a value here are options: the reference describes
/// each, and their defaults stand where they are declared.
struct RelayOptions {
    std::size_t batch_size{};
    std::size_t batch_bytes = std::size_t{1} << 20;
    std::int64_t poll_busy_ms{};
    std::int64_t poll_idle_ms{};
    core::RetryPolicy retry;
    /// Everything sent and not yet in a committed checkpoint: the repeats after a kill (promise 5).
    std::size_t max_unrecorded{};
    std::size_t max_in_flight_bytes{};
    std::size_t max_waiting = 250'000;
    std::size_t tenant_share{};  ///< Per cent of these limits that one tenant may have.
    std::size_t tenant_rate{};   ///< Events of one tenant in a second; 0: any.
    std::string default_tenant;  ///< Of events that name none.
    std::int64_t record_interval_ms = 100;
    std::size_t record_batch = 2'000;
    std::int64_t lease_ttl_ms{};
    std::int64_t lease_renew_ms{};   ///< A part of it, as is
    std::int64_t lease_margin_ms{};  ///< this.
    std::int64_t lease_retry_ms = 200;
    std::int64_t shutdown_grace_ms{};
    std::int64_t retention_s{};
    /// Of the hash that tells lanes apart: random, so that nobody can choose keys that share one.
    std::uint64_t lane_seed = 0;
    std::string owner;  ///< Names this relay in the lease; host:pid.
    std::string whose;  ///< As `spi::destination_changed` has it.
    Unmatched unmatched = Unmatched::kDeadLetter;
    /// After so long a sink that holds back until all is recorded is told that it is: for a replay,
    /// which records an event only behind those that it began before. 0: never.
    std::int64_t taken_for_recorded_ms = 0;
    tracing::SpanQueue* spans = nullptr;  ///< Who is told of spans; outlives the relay.
};

enum class OnDeadLetter : std::uint8_t { kContinue, kBlockKey };

/// One route: what it takes, where it goes.
struct RouteSpec {
    std::string name = "default";
    std::vector<std::string> former_names;  ///< That earlier versions may have given it.
    core::Predicate predicate;
    core::TopicRule topics;
    OnDeadLetter on_dead_letter = OnDeadLetter::kContinue;
    codec::MakeEncoder make_encoder = [] { return std::make_unique<codec::RawEncoder>(); };
    /// Makes the route's sink anew, at each change of owner, for what its ledger calls the
    /// producer.
    std::function<Result<std::unique_ptr<spi::Sink>>(const std::string& producer)> make_sink;
};

/// Something worth a log line. `what` is a stable name such as "lease_acquired".
struct Note {
    enum class Level : std::uint8_t { kInfo, kWarning, kError };
    Level level = Level::kInfo;
    std::string what;
    std::vector<std::pair<std::string, std::string>> fields;
};
using Notify = std::function<void(const Note&)>;  ///< Called from any thread.

}  // namespace outbox::relay
