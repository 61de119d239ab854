#include "brokers/nats/look.h"

#include <memory>
#include <optional>
#include <vector>

#include "brokers/nats/answers.h"
#include "brokers/nats/connection.h"

namespace outbox::nats {
namespace {

constexpr std::string_view kName = "outbox check";
constexpr std::size_t kMostStreams = 10;  // named one by one

// An answer of JetStream's API; nothing: we may not ask.
Result<std::optional<std::string>> ask(const NatsConfig& config, const std::string& subject) {
    const auto connection = Connection::open(config, 0, kName);
    if (!connection.ok()) return connection.error();
    std::optional<Fault> fault;
    auto answer = (*connection)->ask(subject, "", config.connect_timeout, fault);
    if (fault && fault->name == "PERMISSIONS") return std::optional<std::string>();
    if (!fault) fault = fault_of_answer(*answer);
    if (fault && fault->name == "NO RESPONDERS") fault->name = "10076";
    std::string what = name_of_host(config.hosts[(*connection)->host()]);
    if (!config.stream.empty()) what += ", stream " + config.stream;
    if (fault) return to_error(*fault, what);
    return answer;
}

std::string duration_text(std::chrono::nanoseconds time) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time).count();
    if (seconds >= 60 && seconds % 60 == 0) return std::to_string(seconds / 60) + " min";
    if (seconds > 0) return std::to_string(seconds) + " s";
    return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) +
           " ms";
}

std::string describe(const StreamInfo& stream) {
    std::string subjects;
    for (const std::string& subject : stream.subjects) {
        subjects += (subjects.empty() ? "" : ", ") + subject;
    }
    return "stream " + stream.name + " (" + subjects + ") " +
           (stream.duplicate_window.count() > 0
                ? "drops repeats for " + duration_text(stream.duplicate_window)
                : "drops no repeats") +
           (stream.no_ack ? ", and acknowledges nothing: no_ack must be false" : "");
}

}  // namespace

Status look_at_server(const NatsConfig& config) {
    const bool named = !config.stream.empty();
    const auto answer =
        ask(config, named ? "$JS.API.STREAM.INFO." + config.stream : std::string("$JS.API.INFO"));
    if (!answer.ok()) return answer.error();
    if (!named || !*answer) return {};
    const auto streams = read_streams(**answer);
    if (streams.empty() || !streams.front().no_ack) return {};
    return to_error({"NO ACK", "stream " + config.stream + " acknowledges nothing"},
                    name_of_host(config.hosts.front()));
}

Result<std::string> describe_windows(const NatsConfig& config) {
    const auto answer = ask(config, config.stream.empty() ? std::string("$JS.API.STREAM.LIST")
                                                          : "$JS.API.STREAM.INFO." + config.stream);
    if (!answer.ok()) return answer.error();
    if (!*answer) {
        return std::string("how long streams drop repeats is not known: the user may not ask");
    }
    const auto streams = read_streams(**answer);
    std::string text;
    for (std::size_t i = 0; i < streams.size() && i < kMostStreams; ++i) {
        text += (text.empty() ? "" : "; ") + describe(streams[i]);
    }
    if (streams.size() > kMostStreams) {
        text += "; and " + std::to_string(streams.size() - kMostStreams) + " more streams";
    }
    return text.empty() ? std::string("there is no stream yet") : text;
}

}  // namespace outbox::nats
