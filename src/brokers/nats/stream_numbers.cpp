#include "brokers/nats/stream_numbers.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <system_error>
#include <utility>

#include "core/utf8.h"

namespace outbox::nats {
namespace {

constexpr std::size_t kMaxStreams = 1'000;  // whose numbers are remembered
constexpr std::size_t kMaxNotes = 16;

// What stands behind "name": and any blanks.
std::optional<std::string_view> behind(std::string_view json, std::string_view name) {
    const std::size_t at = json.find(name);
    if (at == std::string_view::npos) return std::nullopt;
    json.remove_prefix(at + name.size());
    json.remove_prefix(std::min(json.find_first_not_of(": "), json.size()));
    return json;
}

}  // namespace

std::optional<Accepted> read_accepted(std::string_view json) {
    Accepted accepted;
    const auto stream = behind(json, "\"stream\"");
    if (!stream || !stream->starts_with('"')) return std::nullopt;
    const std::size_t end = stream->find('"', 1);
    if (end == std::string_view::npos) return std::nullopt;
    accepted.stream = stream->substr(1, end - 1);
    // Behind the name, which may look like any of it.
    const std::string_view rest = stream->substr(end + 1);
    const auto number = behind(rest, "\"seq\"");
    if (!number) return std::nullopt;
    const char* const first = number->data();
    if (std::from_chars(first, first + number->size(), accepted.number).ec != std::errc()) {
        return std::nullopt;
    }
    accepted.duplicate = rest.find("\"duplicate\"") != std::string_view::npos;
    return accepted;
}

void StreamNumbers::begin() {
    for (auto& [stream, known] : streams_) known.after = 0;
}

void StreamNumbers::accepted(const Accepted& accepted, std::uint64_t sent, std::uint64_t last_sent,
                             std::string_view where) {
    if (accepted.duplicate) return;
    auto known = streams_.find(accepted.stream);
    if (known == streams_.end()) {
        if (streams_.size() >= kMaxStreams) return;
        known = streams_.emplace(accepted.stream, Known{}).first;
    } else if (sent <= known->second.after) {
        return;
    } else if (accepted.number <= known->second.number && notes_.size() < kMaxNotes) {
        notes_.push_back(
            {spi::SinkReport::Level::kError,
             "destination_set_back",
             {{"error", "stream " + to_printable(accepted.stream) + " at " + std::string(where) +
                            " gave a message the number " + std::to_string(accepted.number) +
                            ", and had acknowledged " + std::to_string(known->second.number)},
              {"consequence", "events that it had acknowledged are gone"},
              {"remedy",
               "where there is a history outbox replay sends them again; see sync_interval, the "
               "number of replicas, and who made the stream anew"}}});
    }
    known->second = {accepted.number, last_sent};
}

void StreamNumbers::report(spi::SinkReport& out) {
    std::move(notes_.begin(), notes_.end(), std::back_inserter(out.notes));
    notes_.clear();
}

}  // namespace outbox::nats
