#include "tests/conformance/courier.h"

#include <thread>
#include <utility>

namespace outbox::test {

namespace {

constexpr std::chrono::milliseconds kPoll{20};
constexpr std::size_t kHeldPolls = 20;
constexpr std::chrono::milliseconds kRest{20};

std::string_view view_of(const std::optional<std::string>& text) {
    return text ? std::string_view(*text) : std::string_view();
}

}  // namespace

spi::Record Letter::record(std::uint64_t token) const {
    header_views.clear();
    for (const auto& [name, value_text] : headers) header_views.push_back({name, value_text});
    spi::Record made;
    made.token = token;
    made.topic = topic;
    made.key = view_of(key);
    made.value = view_of(value);
    made.headers = header_views;
    made.position = static_cast<std::int64_t>(token) + 1;
    made.id = id;
    return made;
}

std::string Courier::deliver(const std::vector<Letter>& letters) {
    for (std::size_t i = 0; i < letters.size(); ++i) waiting_.insert(waiting_.end(), i);
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (!waiting_.empty() || !under_way_.empty()) {
        if (std::chrono::steady_clock::now() >= end) {
            return std::to_string(waiting_.size()) + " letters waiting and " +
                   std::to_string(under_way_.size()) + " under way at the deadline; " +
                   std::to_string(failures_) + " failures" +
                   (last_failure_ ? ", the last one: " + describe(*last_failure_) : "");
        }
        publish(letters);
        if (std::string wrong = collect(letters); !wrong.empty()) return wrong;
        after_poll(*this);
    }
    return {};
}

void Courier::publish(const std::vector<Letter>& letters) {
    if (settling_) {
        if (!under_way_.empty()) return;
        settling_ = false;
        if (std::exchange(away_, false)) std::this_thread::sleep_for(kRest);
    }
    sink_.more_follows(!waiting_.empty());
    // However late the outcomes come, something is left to publish when some have.
    const std::size_t most_under_way = 10 * max_publish_per_poll;
    std::size_t count = 0;
    for (auto next = waiting_.begin(); next != waiting_.end() && count < max_publish_per_poll &&
                                       under_way_.size() < most_under_way;) {
        if (suspect_ && (*next != *suspect_ || !under_way_.empty())) {
            if (!under_way_.empty()) return;
            next = waiting_.find(*suspect_);
        }
        const Letter& letter = letters[*next];
        if (!may_go(letter)) {
            ++next;
            continue;
        }
        if (!sink_.publish(letter.record(*next))) {
            ++times_full_;
            return;
        }
        ++count;
        if (letter.key) busy_keys_.insert(*letter.key);
        under_way_.insert(*next);
        next = waiting_.erase(next);
        if (suspect_) return;
    }
}

bool Courier::may_go(const Letter& letter) const {
    if (held_keys_.contains(letter.key.value_or(letter.id))) return false;
    return sink_.capabilities().fail_stop_order || !letter.key || !busy_keys_.contains(*letter.key);
}

std::string Courier::collect(const std::vector<Letter>& letters) {
    spi::Completions completions;
    sink_.poll(kPoll, completions);
    for (auto held = held_keys_.begin(); held != held_keys_.end();) {
        held = --held->second == 0 ? held_keys_.erase(held) : std::next(held);
    }
    for (const std::uint64_t token : completions.acknowledged) {
        if (std::string wrong = finish(token, letters); !wrong.empty()) return wrong;
        ++acknowledged_;
    }
    for (const spi::FailedRecord& failed : completions.failed) {
        if (std::string wrong = finish(failed.token, letters); !wrong.empty()) return wrong;
        if (!failed.part.empty()) {
            const Letter& letter = letters[failed.token];
            held_keys_[letter.key.value_or(letter.id)] = kHeldPolls;
        }
        take_failure(failed.token, failed);
    }
    return {};
}

std::string Courier::finish(std::size_t index, const std::vector<Letter>& letters) {
    if (under_way_.erase(index) == 0) {
        return "token " + std::to_string(index) + " completed without being under way";
    }
    if (suspect_ == index) suspect_.reset();
    if (letters[index].key) busy_keys_.erase(*letters[index].key);
    return {};
}

void Courier::take_failure(std::size_t index, const spi::FailedRecord& failed) {
    ++failures_;
    last_failure_ = failed.error;
    ++failures_by_code_[std::string(error_code_name(failed.error.code))];
    settling_ = true;
    if (failed.behind) {
        waiting_.insert(index);
        return;
    }
    if (!failed.part.empty()) {
        ++failures_by_part_[failed.part];
        if (++part_failures_[index] >= max_part_failures) {
            dead_.push_back({index, failed.error});
            return;
        }
    } else if (failed.suspect) {
        ++suspects_;
        suspect_ = index;
    } else if (failed.error.advice == Advice::kRetryEvent) {
        ++counted_attempts_;
        if (++attempts_[index] >= max_attempts) {
            dead_.push_back({index, failed.error});
            return;
        }
    } else if (failed.error.advice != Advice::kRetryDestination) {
        dead_.push_back({index, failed.error});
        return;
    }
    if (failed.part.empty() && failed.error.advice == Advice::kRetryDestination) {
        ++destination_failures_;
        away_ = true;
    }
    waiting_.insert(index);
}

}  // namespace outbox::test
