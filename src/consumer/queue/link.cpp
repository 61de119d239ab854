#include "consumer/queue/link.h"

#include <array>
#include <cstdio>
#include <sys/eventfd.h>
#include <unistd.h>
#include <xxhash.h>

#include <outbox/error.h>

#include "consumer/cloud_events.h"
#include "core/utf8.h"

namespace outbox::consumer {
namespace {

// A repeat has the same content, so it has the same name.
std::string name_of(const Arrival& arrival) {
    if (fault_of_id(arrival.id).empty()) return arrival.id;
    const std::string content = arrival.topic + '\0' + arrival.key.value_or("") + '\0' +
                                arrival.headers + '\0' + arrival.payload.value_or("");
    const XXH128_hash_t hash = XXH3_128bits(content.data(), content.size());
    std::array<char, 2 * 16 + 1> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx%016llx",
                  static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    return "content-" + std::string(digits.data());
}

// Handlers write it into their tables.
Arrival with_readable_topic(Arrival arrival) {
    arrival.topic = to_utf8(arrival.topic);
    return arrival;
}

std::string_view view(const std::optional<std::string>& text) {
    return text ? std::string_view(*text) : std::string_view();
}

}  // namespace

std::size_t Arrival::bytes() const {
    return id.size() + topic.size() + view(key).size() + view(payload).size() + headers.size();
}

WakeUp::WakeUp() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (fd_ >= 0) return;
    throw Error(ErrorCode::kInternal, Advice::kStop, "no file descriptor is left");
}

WakeUp::~WakeUp() {
    ::close(fd_);
}

void WakeUp::ring() noexcept {
    ::eventfd_write(fd_, 1);
}

void WakeUp::clear() noexcept {
    eventfd_t count = 0;
    ::eventfd_read(fd_, &count);
}

void Link::finish(std::uint64_t number) {
    if (finished_.empty()) wake_up_.ring();
    finished_.push_back(number);
    --unfinished_;
}

QueueDelivery::QueueDelivery(Arrival arrival, MessageFormat format, bool is_suspect)
    : QueueDelivery(read(std::move(arrival), format), is_suspect) {}

QueueDelivery::Read QueueDelivery::read(Arrival arrival, MessageFormat format) {
    MessageReading reading =
        read_message(format, arrival.id, arrival.headers, view(arrival.payload));
    std::string came_id = arrival.id;
    if (reading.event) {
        arrival.id = std::move(reading.event->id);
        arrival.headers = std::move(reading.event->headers);
        if (reading.event->in_value) arrival.payload = std::move(reading.event->payload);
    }
    if (arrival.id.empty()) arrival.id = arrival.other_id;
    return {with_readable_topic(std::move(arrival)), std::move(reading.fault), std::move(came_id)};
}

QueueDelivery::QueueDelivery(Read read, bool is_suspect)
    : arrival_(std::move(read.arrival)),
      fault_(std::move(read.fault)),
      came_id_(std::move(read.came_id)),
      name_(name_of(arrival_)),
      is_suspect_(is_suspect) {}

spi::EventView QueueDelivery::event() const {
    spi::EventView event;
    event.id = name_;
    event.topic = arrival_.topic;
    event.key = view(arrival_.key);
    event.payload = view(arrival_.payload);
    event.headers = arrival_.headers;
    return event;
}

std::optional<ErrorInfo> QueueDelivery::fault() const {
    const std::string fault = fault_.empty() ? fault_of_id(arrival_.id) : fault_;
    if (fault.empty()) return std::nullopt;
    return ErrorInfo{
        ErrorCode::kInvalidEvent, Advice::kDeadLetter, {}, arrival_.where + " " + fault};
}

std::string QueueDelivery::lane() const {
    if (view(arrival_.key).empty()) return "#" + std::to_string(arrival_.number);
    return "=" + *arrival_.key;
}

std::size_t QueueDelivery::bytes() const {
    return arrival_.bytes();
}

}  // namespace outbox::consumer
