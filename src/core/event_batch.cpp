#include <algorithm>
#include <cstring>

#include <outbox/spi/event_batch.h>

namespace outbox::spi {

namespace {
constexpr std::size_t kBlockBytes = std::size_t{64} << 10;
constexpr std::size_t kKeptBytes = std::size_t{1} << 20;
}  // namespace

std::string_view EventBatch::copy(std::string_view bytes) {
    char* room = allocate(bytes.size());
    if (!bytes.empty()) std::memcpy(room, bytes.data(), bytes.size());
    return {room, bytes.size()};
}

char* EventBatch::allocate(std::size_t size) {
    if (blocks_.empty() || blocks_.back().capacity - blocks_.back().used < size) {
        const std::size_t capacity = std::max(size, kBlockBytes);
        blocks_.push_back({std::make_unique_for_overwrite<char[]>(capacity), capacity, 0});
    }
    Block& block = blocks_.back();
    char* room = block.data.get() + block.used;
    block.used += size;
    bytes_ += size;
    return room;
}

void EventBatch::add_copy(const EventView& event) {
    EventView kept = event;
    for (std::string_view EventView::* field :
         {&EventView::id, &EventView::aggregate_type, &EventView::aggregate_id,
          &EventView::event_type, &EventView::payload, &EventView::headers, &EventView::tenant_id,
          &EventView::schema_id, &EventView::schema_version, &EventView::topic, &EventView::key,
          &EventView::routing_key, &EventView::metadata, &EventView::defect}) {
        if ((event.*field).data() != nullptr) kept.*field = copy(event.*field);
    }
    events_.push_back(kept);
}

void EventBatch::clear() {
    events_.clear();
    closed.clear();
    aside.clear();
    bytes_ = 0;
    // One block suffices for the usual batch; more is given back so that a burst of large events
    // does not stay in memory.
    if (!blocks_.empty()) {
        if (blocks_.front().capacity > kKeptBytes) {
            blocks_.clear();
        } else {
            blocks_.resize(1);
            blocks_.front().used = 0;
        }
    }
}

}  // namespace outbox::spi
