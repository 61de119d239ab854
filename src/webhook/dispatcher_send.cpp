#include <algorithm>
#include <string_view>
#include <utility>

#include "webhook/dispatcher.h"

// Whose deliveries are read, and which of them go.
namespace outbox::webhook {
namespace {

using Standing = EndpointQueue::Standing;
// A read is as large as about that time allows.
constexpr std::int64_t kReadUs = 300'000;
constexpr std::size_t kLeastReadBytes = std::size_t{64} << 10;
constexpr std::size_t kMostReadBytes = std::size_t{16} << 20;

}  // namespace

void Dispatcher::ended(const Attempt& attempt) {
    const auto host = of_host_.find(attempt.host);
    if (attempt.unproven) {
        --unproven_;
        --host->second.unproven;
    }
    if (--host->second.attempts == 0) of_host_.erase(host);
}

bool Dispatcher::host_is_full(const EndpointQueue& queue) const {
    const auto host = of_host_.find(queue.host());
    return host != of_host_.end() && host->second.attempts >= options_.max_per_host();
}

// Those that hang may not take the places of those that do not, neither of all nor of their host.
bool Dispatcher::is_one_too_many(const EndpointQueue& queue) const {
    if (queue.proven()) return false;
    if (unproven_ >= options_.max_connections / 2) return true;
    const auto host = of_host_.find(queue.host());
    return host != of_host_.end() &&
           host->second.unproven >= std::max<std::size_t>(options_.max_per_host() / 2, 1);
}

// The last places, of all and of its host, are for endpoints with nothing under way: many that hang
// at once must not take them before one fails.
bool Dispatcher::leaves_places(const EndpointQueue& queue) const {
    const auto most = [](std::size_t places) { return places - places / 4; };
    const auto host = of_host_.find(queue.host());
    return queue.under_way().empty() ||
           (under_way_.size() < most(options_.max_connections) &&
            (host == of_host_.end() || host->second.attempts < most(options_.max_per_host())));
}

// So that those that hang leave the others of their host, too, what is theirs.
std::size_t Dispatcher::share_of(const EndpointQueue& queue) const {
    const auto busy = busy_of_host_.find(queue.host());
    if (busy == busy_of_host_.end()) return share_;
    return std::clamp<std::size_t>(options_.max_per_host() / busy->second, 1, share_);
}

// Reads for endpoints that could send. True: it read something.
bool Dispatcher::fill() {
    std::size_t busy = 0;
    std::size_t bytes = 0;
    std::size_t unproven_bytes = 0;
    const Now at = now();
    busy_of_host_.clear();
    for (const EndpointQueue* queue : circle_) {
        if (queue->busy() && !queue->paused(at)) {
            ++busy;
            ++busy_of_host_[queue->host()];
        }
        bytes += queue->bytes();
        unproven_bytes += queue->proven() ? 0 : queue->bytes();
    }
    share_ = std::clamp<std::size_t>(options_.max_connections / std::max<std::size_t>(busy, 1), 1,
                                     options_.max_per_endpoint);
    if (bytes >= options_.max_bytes || under_way_.size() >= options_.max_connections) return false;
    std::size_t max_bytes = std::min(read_bytes_, options_.max_bytes - bytes);
    // Those that hang may not take the memory of those that do not.
    const std::size_t half = options_.max_bytes / 2;
    const std::size_t places = options_.max_connections / 2;
    std::vector<EndpointQueue*> hungry;
    if (unproven_bytes < half && unproven_ < places) {
        const std::size_t most = std::min(options_.max_slices / 2, places - unproven_);
        // What fails will most likely hang, or fail once more.
        add_hungry(Standing::kUnknown, most, at, hungry);
        add_hungry(Standing::kFailing, most, at, hungry);
        if (!hungry.empty()) max_bytes = std::min(max_bytes, half - unproven_bytes);
    }
    add_hungry(Standing::kProven, options_.max_slices, at, hungry);
    if (!hungry.empty()) add_with_room(hungry);
    // What failed must be in the table before others of its key are read; of whom it is not, that
    // is known by then.
    if (hungry.empty() || !flush(true)) return false;
    std::erase_if(hungry, [this](const EndpointQueue* queue) { return is_unrecorded(*queue); });
    return !hungry.empty() && read_for(hungry, max_bytes);
}

void Dispatcher::add_hungry(Standing standing, std::size_t most, const Now& at,
                            std::vector<EndpointQueue*>& out) {
    for (std::size_t i = 0; i < circle_.size() && out.size() < most; ++i) {
        EndpointQueue* queue = circle_[(next_ + i) % circle_.size()];
        if (queue->standing() != standing || host_is_full(*queue)) continue;
        if (is_one_too_many(*queue)) continue;
        if (is_unrecorded(*queue)) continue;
        if (queue->wants_slice(share_of(*queue), at)) out.push_back(queue);
    }
}

// A read and what it waits for cost the same for one as for many.
void Dispatcher::add_with_room(std::vector<EndpointQueue*>& out) {
    for (std::size_t i = 0; i < circle_.size() && out.size() < options_.max_slices; ++i) {
        EndpointQueue* queue = circle_[(next_ + i) % circle_.size()];
        if (!queue->has_room() || !queue->busy() || host_is_full(*queue)) continue;
        if (is_unrecorded(*queue)) continue;
        if (std::find(out.begin(), out.end(), queue) == out.end()) out.push_back(queue);
    }
}

bool Dispatcher::read_for(const std::vector<EndpointQueue*>& hungry, std::size_t max_bytes) {
    std::vector<Slice> slices;
    std::unordered_map<std::string_view, std::size_t> index;
    for (const EndpointQueue* queue : hungry) {
        index.emplace(queue->endpoint().id, slices.size());
        slices.push_back(queue->slice());
    }
    std::vector<Delivery> deliveries;
    const std::int64_t started_us = deps_.clock.boot_us();
    const std::int64_t wall_us = deps_.clock.wall_us();
    const auto read = deps_.outlet.fetch(slices, {wall_us, wall_us + options_.longest_wait_us()},
                                         {options_.slice_bytes, max_bytes}, deliveries);
    if (failed(read.status())) return false;
    const bool anew = life_.value_or(read->life) != read->life;
    const bool elsewhere = session_.value_or(read->session) != read->session;
    if (anew) remark(Remark::Level::kWarning, "webhooks_table_anew", {});
    life_ = read->life;
    session_ = read->session;
    if (anew || elsewhere) {
        flush(true, true);
        unrecorded_.clear();
        forget_all();
        return true;
    }
    std::vector<std::vector<Delivery>> parts(slices.size());
    std::size_t bytes = 0;
    std::size_t last = 0;  // that something was read for
    for (Delivery& delivery : deliveries) {
        const auto part = index.find(delivery.endpoint_id);
        if (part == index.end()) continue;
        bytes += delivery.payload.size();
        last = std::max(last, part->second);
        parts[part->second].push_back(std::move(delivery));
    }
    adapt(deps_.clock.boot_us() - started_us, bytes);
    const bool cut = bytes >= max_bytes;
    // Those behind it get their turn in a later read.
    const std::size_t end = cut ? last + 1 : slices.size();
    for (std::size_t i = 0; i < end; ++i) {
        hungry[i]->admit(std::move(parts[i]), slices[i], read->looked[i], read->writers,
                         cut && i == last);
    }
    return !deliveries.empty();
}

// So that no read takes long where the database is slow or far away.
void Dispatcher::adapt(std::int64_t took_us, std::size_t bytes) {
    if (took_us > kReadUs) {
        const auto share = static_cast<double>(kReadUs) / static_cast<double>(took_us);
        const auto fits = static_cast<std::size_t>(static_cast<double>(bytes) * share);
        read_bytes_ = std::clamp(fits, kLeastReadBytes, read_bytes_);
    } else if (took_us < kReadUs / 3 && bytes >= read_bytes_) {
        read_bytes_ = std::min(read_bytes_ * 2, kMostReadBytes);
    }
}

// One of each endpoint in turn, until none may go.
bool Dispatcher::send() {
    bool sent = false;
    std::size_t idle = 0;
    const Now at = now();
    while (idle < circle_.size() && under_way_.size() < options_.max_connections && lease_holds()) {
        EndpointQueue& queue = *circle_[next_ % circle_.size()];
        next_ = (next_ + 1) % circle_.size();
        ++idle;
        if (is_one_too_many(queue) || host_is_full(queue) || !leaves_places(queue)) continue;
        const bool unproven = !queue.proven();
        const Delivery* delivery = queue.take(share_of(queue), at);
        if (delivery == nullptr) continue;
        idle = 0;
        sent = true;
        const std::uint64_t token = ++last_token_;
        under_way_.emplace(token, Attempt{&queue, delivery->position, unproven, queue.host()});
        OfHost& of_host = of_host_[queue.host()];
        ++of_host.attempts;
        of_host.unproven += unproven ? 1 : 0;
        unproven_ += unproven ? 1 : 0;
        deps_.sender.start(token, queue.endpoint(), *delivery);
    }
    return sent;
}

}  // namespace outbox::webhook
