#include "consumer/queue/link.h"

#include <array>
#include <cstdio>
#include <sys/eventfd.h>
#include <unistd.h>
#include <xxhash.h>

#include <outbox/error.h>

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

QueueDelivery::QueueDelivery(Arrival arrival, std::optional<ErrorInfo> undeliverable)
    : arrival_(std::move(arrival)),
      name_(name_of(arrival_)),
      undeliverable_(std::move(undeliverable)) {}

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
    const std::string fault = fault_of_id(arrival_.id);
    if (fault.empty()) return undeliverable_;
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
