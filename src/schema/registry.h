#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

#include <outbox/result.h>

#include "core/mutex.h"
#include "net/http_client.h"
#include "schema/json_schema.h"
#include "schema/registry_answers.h"
#include "schema/registry_config.h"

namespace outbox::schema {

struct RegistryLimits {
    std::size_t max_schemas = 1'000;                ///< Remembered; the longest unused go first.
    std::size_t max_bytes = std::size_t{64} << 20;  ///< Of memory, about.
    std::size_t max_schema_bytes = std::size_t{1} << 20;  ///< Of an answer, and of all references.
    std::size_t max_references = 64;                      ///< Schemas that one refers to, in all.
    std::chrono::milliseconds latest_for{60'000};         ///< Then "latest" is asked for again.
    std::chrono::milliseconds version_for{600'000};       ///< Then a version that has a number is.
    /// Then what was not there is; each time in vain twice as late, up to `latest_for`, so that
    /// subjects that nobody registers leave the registry to others.
    std::chrono::milliseconds unknown_for{1'000};
    std::chrono::milliseconds request_time{10'000};
};

/// A schema registry and what it has answered. Thread-safe; one request at a time is under way.
class Registry {
  public:
    using Clock = std::chrono::steady_clock;

    explicit Registry(RegistryConfig config, const RegistryLimits& limits = {},
                      std::function<Clock::time_point()> now = Clock::now);

    /// "schema registry https://host:8081"
    [[nodiscard]] const std::string& name() const { return name_; }

    struct Schema {
        std::uint32_t id = 0;
        std::optional<JsonSchema> rules;  ///< Nothing: it is no JSON Schema.
        std::size_t bytes = 0;
    };
    struct Failure {
        ErrorInfo error;
        std::string part;  ///< Where it is of one schema: "schema 'orders' version 3 in ..."
    };
    using Answer = std::variant<std::shared_ptr<const Schema>, Failure>;

    /// What is remembered; nothing: it has to be asked. Does not wait. An empty version is
    /// "latest".
    std::optional<Answer> find(std::string_view subject, std::string_view version);
    /// Whether a schema is remembered, though it may have to be asked for again. Does not wait.
    bool has_had(std::string_view subject, std::string_view version);
    /// Asks, unless it is remembered by now. Blocks for a request, and those under way before it;
    /// ends within 100 ms of `stop`. While the registry is away a version that has a number stays
    /// what it was. Advice of errors: retry_destination.
    Answer ask(std::string_view subject, std::string_view version, const std::stop_token& stop) {
        return ask(subject, version, Clock::time_point::min(), stop);
    }
    /// Asks for the latest version, though it is remembered, unless it was asked for within
    /// `unknown_for`. Otherwise as `ask`.
    Answer ask_for_latest_anew(std::string_view subject, const std::stop_token& stop) {
        return ask(subject, {}, now_() - limits_.unknown_for, stop);
    }
    /// That a registry answers, and takes us.
    Status check();
    /// `rules.check`. Blocks: of payloads above 1 MiB, which may take much memory, one is checked
    /// at a time. Ends within 100 ms of `stop` while it waits.
    JsonSchema::Outcome check_payload(const JsonSchema& rules, std::string_view payload,
                                      const std::stop_token& stop, JsonSchema::Violation& out);
    /// The error of what the relay does not wait for, as it stops.
    [[nodiscard]] ErrorInfo stopped() const;

  private:
    struct Entry {
        Answer answer;
        Clock::time_point asked;  // when the request began
        Clock::time_point until;
        std::chrono::milliseconds for_so_long;
        std::list<std::string>::iterator use;
    };
    using Fetched = std::variant<Registered, RegistryFault>;

    Answer ask(std::string_view subject, std::string_view version, Clock::time_point asked_after,
               const std::stop_token& stop);
    std::optional<Answer> find_locked(const std::string& key, Clock::time_point asked_after)
        OUTBOX_REQUIRES(mutex_);
    Answer or_as_it_was(const std::string& key, const Failure& outage) OUTBOX_REQUIRES(mutex_);
    void remember(const std::string& key, const Answer& answer, bool is_latest,
                  Clock::time_point asked) OUTBOX_REQUIRES(mutex_);
    void forget(std::unordered_map<std::string, Entry>::iterator entry) OUTBOX_REQUIRES(mutex_);
    Answer fetch_and_compile(std::string_view subject, const std::string& version,
                             const std::stop_token& stop);
    RegistryFault ask_types(const std::stop_token& stop);
    std::optional<RegistryFault> fetch_references(const Registered& of, References& out,
                                                  const std::stop_token& stop);
    Fetched fetch(std::string_view subject, std::string_view version, const std::stop_token& stop);
    std::variant<net::HttpOutcome, RegistryFault> get(const std::string& path,
                                                      const std::stop_token& stop);

    const RegistryConfig config_;
    const RegistryLimits limits_;
    const std::function<Clock::time_point()> now_;
    const std::string name_;
    net::HttpClient http_;  // whoever has set `asking_`

    core::Mutex mutex_;
    core::Condition answered_;
    core::Condition checked_;
    bool checking_large_ OUTBOX_GUARDED_BY(mutex_) = false;
    bool asking_ OUTBOX_GUARDED_BY(mutex_) = false;
    std::uint64_t outages_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::optional<Failure> outage_ OUTBOX_GUARDED_BY(mutex_);  // the last
    std::unordered_map<std::string, Entry> entries_ OUTBOX_GUARDED_BY(mutex_);
    std::list<std::string> used_ OUTBOX_GUARDED_BY(mutex_);  // keys, the last one first
    std::size_t bytes_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::string key_ OUTBOX_GUARDED_BY(mutex_);
};

}  // namespace outbox::schema
