#include "relay/held_batches.h"

#include "core/check.h"

namespace outbox::relay {

std::uint32_t HeldBatches::open() {
    if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(batches_.size()));
        batches_.push_back(std::make_unique<Held>());
    }
    const std::uint32_t id = free_.back();
    free_.pop_back();
    batches_[id]->serial = next_serial_++;
    return id;
}

void HeldBatches::count(Held& held) {
    const std::size_t now = held.batch.bytes();
    bytes_ += now - held.bytes;
    held.bytes = now;
}

void HeldBatches::let_go(std::uint32_t id, std::uint32_t events) {
    Held& held = *batches_[id];
    OUTBOX_CHECK(held.live >= events, "a batch is let go once for each event");
    held.live -= events;
    if (held.live > 0) return;
    bytes_ -= held.bytes;
    held.bytes = 0;
    held.batch.clear();
    free_.push_back(id);
}

void HeldBatches::keep_letter(std::size_t bytes) {
    letters_.push_back(bytes);
    bytes_ += bytes;
}

void HeldBatches::letter_recorded() {
    OUTBOX_CHECK(!letters_.empty(), "only letters on their way are recorded");
    bytes_ -= letters_.front();
    letters_.pop_front();
}

void HeldBatches::note_size(const spi::EventBatch& batch) {
    if (batch.empty()) return;
    const std::size_t now = batch.bytes() / batch.size() + 1;
    // Growth counts at once, shrinking bit by bit.
    bytes_per_event_ = now > bytes_per_event_ ? now : (bytes_per_event_ * 7 + now) / 8;
}

}  // namespace outbox::relay
