#include "net/waiting.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace outbox::net {

void Waiting::add(const Item& item) {
    if (search_.is_suspect(item.record.id)) {
        suspects_.push_back(item);
    } else {
        (search_.is_stranger(item.record) ? strangers_ : known_).push_back(item);
    }
}

void Waiting::add_again(const std::vector<Item>& items) {
    for (auto item = items.rbegin(); item != items.rend(); ++item) {
        if (search_.is_suspect(item->record.id)) {
            suspects_.push_back(*item);
        } else {
            known_.push_front(*item);
        }
    }
    const auto strangers = std::stable_partition(
        known_.begin(), known_.end(),
        [this](const Item& item) { return !search_.is_stranger(item.record); });
    strangers_.insert(strangers_.begin(), strangers, known_.end());
    known_.erase(strangers, known_.end());
}

EndSearch::Turn Waiting::turn(EndSearch::Line line, Time now, std::optional<Item>& suspect,
                              bool more_others) {
    const auto found = std::find_if(suspects_.begin(), suspects_.end(), [&](const Item& item) {
        return search_.may_go(item.record.id, now);
    });
    const EndSearch::Turn turn =
        search_.turn({.others = has_others() || more_others,
                      .suspect = found == suspects_.end() ? std::string_view() : found->record.id},
                     line, now);
    if (turn == EndSearch::Turn::kSuspect) {
        suspect = *found;
        suspects_.erase(found);
    }
    return turn;
}

std::optional<Item> Waiting::next(Time now, const MayGo& may_go) {
    std::optional<Item> item;
    if (!strangers_.empty()) {
        const bool newest = search_.newest_first(now);
        const Item& next = newest ? strangers_.back() : strangers_.front();
        if (search_.may_stranger_go(next.record, !known_.empty(), now) &&
            (!may_go || may_go(next))) {
            item = next;
            newest ? strangers_.pop_back() : strangers_.pop_front();
            return item;
        }
    }
    if (known_.empty()) return item;
    item = known_.front();
    known_.pop_front();
    return item;
}

std::vector<Item> Waiting::take_all() {
    std::vector<Item> all;
    for (auto* row : {&known_, &strangers_, &suspects_}) {
        all.insert(all.end(), row->begin(), row->end());
        row->clear();
    }
    return all;
}

}  // namespace outbox::net
