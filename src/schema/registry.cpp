#include "schema/registry.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/url.h"
#include "core/utf8.h"
#include "schema/registry_errors.h"

namespace outbox::schema {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{50};  // for `stop`
constexpr std::size_t kLargePayload = std::size_t{1} << 20;
constexpr std::string_view kLatest = "latest";
constexpr std::string_view kJson = "JSON";

net::HttpOptions http_options(const RegistryConfig& config, const RegistryLimits& limits) {
    net::HttpOptions options = http_options_of(config);
    options.max_response_bytes = limits.max_schema_bytes;
    options.max_connections_per_host = 1;
    options.max_connections = 1;
    return options;
}

void write_key(std::string_view subject, std::string_view version, std::string& out) {
    out.assign(version.empty() ? kLatest : version).append(1, '\n').append(subject);
}

RegistryFault stop_fault() {
    return {"STOPPED", "the relay stops"};
}

std::size_t bytes_of(const Registry::Answer& answer) {
    const auto* schema = std::get_if<std::shared_ptr<const Registry::Schema>>(&answer);
    return schema == nullptr ? 0 : (*schema)->bytes;
}

}  // namespace

Registry::Registry(RegistryConfig config, const RegistryLimits& limits,
                   std::function<Clock::time_point()> now)
    : config_(std::move(config)),
      limits_(limits),
      now_(std::move(now)),
      name_("schema registry " + config_.base),
      http_(http_options(config_, limits)) {}

std::optional<Registry::Answer> Registry::find(std::string_view subject, std::string_view version) {
    const core::Lock lock(mutex_);
    write_key(subject, version, key_);
    return find_locked(key_, Clock::time_point::min());
}

bool Registry::has_had(std::string_view subject, std::string_view version) {
    const core::Lock lock(mutex_);
    write_key(subject, version, key_);
    const auto found = entries_.find(key_);
    return found != entries_.end() && !std::holds_alternative<Failure>(found->second.answer);
}

std::optional<Registry::Answer> Registry::find_locked(const std::string& key,
                                                      Clock::time_point asked_after) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return std::nullopt;
    Entry& entry = found->second;
    if (now_() >= entry.until || entry.asked <= asked_after) return std::nullopt;
    used_.splice(used_.begin(), used_, entry.use);
    return entry.answer;
}

void Registry::forget(std::unordered_map<std::string, Entry>::iterator entry) {
    bytes_ -= bytes_of(entry->second.answer);
    used_.erase(entry->second.use);
    entries_.erase(entry);
}

void Registry::remember(const std::string& key, const Answer& answer, bool is_latest,
                        Clock::time_point asked) {
    milliseconds time = is_latest ? limits_.latest_for : limits_.version_for;
    if (std::holds_alternative<Failure>(answer)) time = limits_.unknown_for;
    if (const auto old = entries_.find(key); old != entries_.end()) {
        if (std::holds_alternative<Failure>(answer) &&
            std::holds_alternative<Failure>(old->second.answer)) {
            time = std::min(2 * old->second.for_so_long,
                            std::max(limits_.latest_for, limits_.unknown_for));
        }
        forget(old);
    }
    used_.push_front(key);
    entries_.emplace(key, Entry{answer, asked, now_() + time, time, used_.begin()});
    bytes_ += bytes_of(answer);
    while (entries_.size() > 1 &&
           (entries_.size() > limits_.max_schemas || bytes_ > limits_.max_bytes)) {
        forget(entries_.find(used_.back()));
    }
}

Registry::Answer Registry::ask(std::string_view subject, std::string_view version,
                               Clock::time_point asked_after, const std::stop_token& stop) {
    std::string key;
    write_key(subject, version, key);
    core::Lock lock(mutex_);
    if (auto found = find_locked(key, asked_after)) return *std::move(found);
    const std::uint64_t outages = outages_;
    while (asking_) {
        answered_.wait_for(mutex_, kLook, [&]() OUTBOX_REQUIRES(mutex_) { return !asking_; });
        // Whoever was before us has waited for it, and in vain.
        if (outages_ != outages) return or_as_it_was(key, *outage_);
        if (stop.stop_requested()) return Failure{stopped(), {}};
    }
    if (auto found = find_locked(key, asked_after)) return *std::move(found);
    asking_ = true;
    lock.unlock();
    const Clock::time_point asked = now_();
    const std::string wanted(version.empty() ? kLatest : version);
    Answer answer = fetch_and_compile(subject, wanted, stop);
    lock.lock();
    asking_ = false;
    const Failure* failure = std::get_if<Failure>(&answer);
    if (failure != nullptr && failure->part.empty()) {
        ++outages_;
        outage_ = *failure;
        answer = or_as_it_was(key, *outage_);
    } else {
        remember(key, answer, wanted == kLatest, asked);
    }
    answered_.notify_all();
    return answer;
}

// What has a number is hardly ever another one: better that than to wait. Asked for again as late
// as if it had been told, as each time may cost the timeout.
Registry::Answer Registry::or_as_it_was(const std::string& key, const Failure& outage) {
    const auto found = entries_.find(key);
    const bool has_number = !key.starts_with(std::string(kLatest) + "\n");
    if (found == entries_.end() || !has_number ||
        std::holds_alternative<Failure>(found->second.answer)) {
        return outage;
    }
    found->second.until = now_() + limits_.version_for;
    return found->second.answer;
}

Registry::Answer Registry::fetch_and_compile(std::string_view subject, const std::string& version,
                                             const std::stop_token& stop) {
    const std::string what =
        "schema '" + to_printable(subject) + "' version " + to_printable(version) + " in " + name_;
    const auto failed = [&](RegistryFault fault) -> Answer {
        Concern concern = concern_of(fault);
        if (concern == Concern::kUnclear && ask_types(stop).name.empty()) {
            fault.name = "OF SCHEMA";
            concern = Concern::kSchema;
        }
        if (concern != Concern::kSchema) return Failure{to_error(fault, name_), {}};
        return Failure{to_error(fault, what), what};
    };
    const Fetched fetched = fetch(subject, version, stop);
    if (const auto* fault = std::get_if<RegistryFault>(&fetched)) return failed(*fault);
    const auto& registered = std::get<Registered>(fetched);
    auto schema = std::make_shared<Schema>();
    schema->id = registered.id;
    schema->bytes = registered.text.size();
    if (registered.type != kJson) return std::shared_ptr<const Schema>(std::move(schema));
    References references;
    if (const auto fault = fetch_references(registered, references, stop)) return failed(*fault);
    std::string why;
    schema->rules = JsonSchema::compile(registered.text, references, why);
    if (!schema->rules) return failed({"UNUSABLE", "payloads cannot be checked by it: " + why});
    schema->bytes = schema->rules->bytes();
    return std::shared_ptr<const Schema>(std::move(schema));
}

std::optional<RegistryFault> Registry::fetch_references(const Registered& of, References& out,
                                                        const std::stop_token& stop) {
    std::vector<Registered::Reference> waiting = of.references;
    std::size_t bytes = 0;
    while (!waiting.empty()) {
        const Registered::Reference next = std::move(waiting.back());
        waiting.pop_back();
        if (out.contains(next.name)) continue;
        if (out.size() >= limits_.max_references) {
            return RegistryFault{
                "UNUSABLE",
                "it refers to more than " + std::to_string(limits_.max_references) + " others"};
        }
        Fetched fetched = fetch(next.subject, next.version, stop);
        if (auto* fault = std::get_if<RegistryFault>(&fetched)) {
            fault->text = "of its reference " + next.name + ": " + fault->text;
            return std::move(*fault);
        }
        auto& registered = std::get<Registered>(fetched);
        bytes += registered.text.size();
        if (bytes > limits_.max_schema_bytes) {
            return RegistryFault{"TOO LARGE", "what it refers to has more than " +
                                                  std::to_string(limits_.max_schema_bytes) +
                                                  " bytes"};
        }
        out.emplace(next.name, std::move(registered.text));
        waiting.insert(waiting.end(), registered.references.begin(), registered.references.end());
    }
    return std::nullopt;
}

Registry::Fetched Registry::fetch(std::string_view subject, std::string_view version,
                                  const std::stop_token& stop) {
    auto got = get("/subjects/" + path_part(subject) + "/versions/" + path_part(version), stop);
    if (auto* fault = std::get_if<RegistryFault>(&got)) return std::move(*fault);
    const auto& outcome = std::get<net::HttpOutcome>(got);
    return read_registered(outcome.status, outcome.header("location"), outcome.body);
}

std::variant<net::HttpOutcome, RegistryFault> Registry::get(const std::string& path,
                                                            const std::stop_token& stop) {
    net::HttpRequest request{.url = config_.base + path,
                             .headers = {{"Accept",
                                          "application/vnd.schemaregistry.v1+json, "
                                          "application/json"}},
                             .timeout = limits_.request_time,
                             .connect_timeout = config_.connect_timeout};
    const Status proven = net::add_authorization(config_, request.headers);
    if (!proven.ok()) return RegistryFault{"CREDENTIALS", proven.error().message};
    http_.start(0, std::move(request));
    std::vector<net::HttpOutcome> outcomes;
    while (outcomes.empty()) {
        http_.poll(kLook, outcomes);
        if (!outcomes.empty() || !stop.stop_requested()) continue;
        http_.cancel_all();
        return stop_fault();
    }
    net::HttpOutcome& outcome = outcomes.front();
    if (outcome.fault) {
        return RegistryFault{std::string(net::word_of(outcome.fault->kind)), outcome.fault->text};
    }
    return std::move(outcome);
}

RegistryFault Registry::ask_types(const std::stop_token& stop) {
    auto got = get("/schemas/types", stop);
    if (auto* fault = std::get_if<RegistryFault>(&got)) return std::move(*fault);
    const auto& outcome = std::get<net::HttpOutcome>(got);
    return read_types(outcome.status, outcome.header("location"), outcome.body);
}

Status Registry::check() {
    const RegistryFault fault = ask_types({});
    return fault.name.empty() ? Status() : Status(to_error(fault, name_));
}

JsonSchema::Outcome Registry::check_payload(const JsonSchema& rules, std::string_view payload,
                                            const std::stop_token& stop,
                                            JsonSchema::Violation& out) {
    if (payload.size() <= kLargePayload) return rules.check(payload, stop, out);
    core::Lock lock(mutex_);
    while (checking_large_) {
        checked_.wait_for(mutex_, kLook, [&]() OUTBOX_REQUIRES(mutex_) {  //
            return !checking_large_;
        });
        if (stop.stop_requested()) return JsonSchema::Outcome::kStopped;
    }
    checking_large_ = true;
    lock.unlock();
    const JsonSchema::Outcome outcome = rules.check(payload, stop, out);
    lock.lock();
    checking_large_ = false;
    checked_.notify_one();
    return outcome;
}

ErrorInfo Registry::stopped() const {
    return to_error(stop_fault(), name_);
}

}  // namespace outbox::schema
