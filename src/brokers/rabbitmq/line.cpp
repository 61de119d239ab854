#include "brokers/rabbitmq/line.h"

namespace outbox::rabbitmq {

// They come back in the order in which they were sent. An id is not enough: several events may have
// it, and the one that went to no queue must not pass for the one that did.
void Line::mark_returned(const Word& word) {
    for (std::size_t n = 0; n < sent_.size(); ++n) {
        const std::size_t i = (next_returned_ + n) % sent_.size();
        Sent& sent = sent_[i];
        if (sent.state != State::kOpen || sent.returned != nullptr ||
            !word.returned.is_of(sent.item.record)) {
            continue;
        }
        sent.returned = std::make_unique<Fault>(word.fault);
        next_returned_ = i + 1;
        return;
    }
    // The broker changed it (a plugin adds headers): of one id all count as returned, as a repeat
    // is better than a loss.
    for_each_open([&](Sent& sent) {
        if (sent.item.record.id == word.returned.id) {
            sent.returned = std::make_unique<Fault>(word.fault);
        }
        return true;
    });
}

void Line::clear() {
    sent_.clear();
    first_tag_ = 1;
    next_returned_ = 0;
    next_judged_ = 0;
    judged_ = 0;
    open_ = 0;
    told_ = 0;
}

void Line::drop_settled() {
    while (!sent_.empty() && sent_.front().state == State::kSettled) {
        sent_.pop_front();
        ++first_tag_;
        if (next_returned_ > 0) --next_returned_;
        if (next_judged_ > 0) --next_judged_;
    }
}

}  // namespace outbox::rabbitmq
