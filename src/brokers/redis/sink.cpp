#include "brokers/redis/sink.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "core/record_bytes.h"
#include "net/remembered.h"

namespace outbox::redis {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kBatchRecords = 256;
constexpr std::size_t kBatchBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxBatches = 16;  // under way
constexpr milliseconds kTryAgainMin{50};
constexpr milliseconds kTryAgainMax{1'000};

spi::FailedRecord behind(std::string why) {
    return {.error = {ErrorCode::kSinkRebuilt, Advice::kRetryDestination, {}, std::move(why)},
            .behind = true};
}

std::size_t largest_part(const spi::Record& record) {
    std::size_t largest = std::max(record.key.size(), record.value.size());
    for (const spi::HeaderView& header : record.headers) {
        largest = std::max({largest, header.name.size(), header.value.size()});
    }
    return largest;
}

// Two routes to one server are told apart by their producers.
std::string name_of(const RedisConfig& config) {
    std::string name;
    for (const net::Host& host : config.hosts) name += name_of_host(host) + ' ';
    return name + std::to_string(config.database) + ' ' + config.producer;
}

}  // namespace

RedisSink::RedisSink(RedisConfig config)
    : config_(std::move(config)), reached_(net::remembered<Place>(name_of(config_))) {}

RedisSink::~RedisSink() {
    if (session_ != nullptr) *reached_ = session_->reached();
}

const spi::SinkCapabilities& RedisSink::capabilities() const {
    return kCapabilities;
}

Status RedisSink::check() {
    return look_at_server(config_);
}

// A replica more at the end of the URL leads to the same data.
Result<std::string> RedisSink::destination() {
    const net::Host& first = config_.hosts.front();
    return name_of_host(first) + ", database " + std::to_string(config_.database);
}

bool RedisSink::publish(const spi::Record& record) {
    // What was refused must be known to the caller before anything behind it is accepted.
    if (!refused_.empty()) return false;
    const std::size_t bytes = payload_bytes(record);
    if (records_ >= config_.max_records) return false;
    if (records_ > 0 && bytes_ + bytes > config_.max_bytes) return false;
    ++records_;
    bytes_ += bytes;
    if (auto why = why_not_carried(record)) {
        fail({record, bytes},
             {.error = {ErrorCode::kRecordRefused,
                        Advice::kDeadLetter,
                        {},
                        "event " + std::string(record.id) +
                            " fits no entry of a stream: " + *std::move(why)}},
             refused_);
    } else {
        queue_.push_back({record, bytes});
    }
    return true;
}

void RedisSink::poll(milliseconds max_wait, spi::Completions& out) {
    std::move(refused_.failed.begin(), refused_.failed.end(), std::back_inserter(out.failed));
    refused_.clear();
    const Time now = std::chrono::steady_clock::now();
    if (sent_.empty()) heard_ = now;
    if (session_ != nullptr && sent_.empty()) receive(now, out);
    if (session_ == nullptr && !queue_.empty()) connect(now, out);
    if (session_ == nullptr) {
        if (out.empty()) std::this_thread::sleep_for(max_wait);
        return;
    }
    send(now, out);
    if (session_ != nullptr) receive(now, out);
    if (session_ == nullptr || !out.empty()) return;
    session_->wait(max_wait);
    receive(std::chrono::steady_clock::now(), out);
}

// A server that has lost what it acknowledged goes on as if nothing was: nobody else would say so.
void RedisSink::compare(const Session& session) {
    const Place& known = session.before();
    if (known.session > reached_->session ||
        (known.session == reached_->session && known.batch >= reached_->batch)) {
        return;
    }
    const auto told = [](const Place& place) {
        return "session " + std::to_string(place.session) + ", batch " +
               std::to_string(place.batch);
    };
    notes_.push_back({spi::SinkReport::Level::kError,
                      "destination_set_back",
                      {{"error", where() + " knows this route up to " + told(known) +
                                     ", and had acknowledged " + told(*reached_)},
                       {"consequence", "events that it had acknowledged are gone"},
                       {"remedy",
                        "where there is a history outbox replay sends them again; see "
                        "appendonly, appendfsync and what a failover leaves behind"}}});
}

void RedisSink::report(spi::SinkReport& out) {
    std::move(notes_.begin(), notes_.end(), std::back_inserter(out.notes));
    notes_.clear();
}

void RedisSink::connect(Time now, spi::Completions& out) {
    if (down_ && now < next_try_) {
        fail_queue(*down_, out);
        return;
    }
    auto session = Session::begin(config_, host_);
    if (session.ok()) {
        session_ = std::move(*session);
        compare(*session_);
        host_ = session_->host();
        closed_.clear();
        heard_ = std::chrono::steady_clock::now();
        return;
    }
    down_ = session.error();
    next_try_ = std::chrono::steady_clock::now() +
                std::min(kTryAgainMin * (1U << std::min(tries_, 5U)), kTryAgainMax);
    ++tries_;
    fail_queue(*down_, out);
}

void RedisSink::send(Time now, spi::Completions& out) {
    while (!queue_.empty() && sent_.size() < kMaxBatches) {
        std::vector<Item> items;
        while (!queue_.empty() && items.size() < kBatchRecords) {
            const Item item = queue_.front();
            const spi::Record& record = item.record;
            if (!items.empty() && batch_.bytes() + item.bytes > kBatchBytes) break;
            queue_.pop_front();
            if (!record.id.empty() && session_->has(record.id)) {
                acknowledge(item, out);
            } else {
                if (!closed_.empty() && closed_.erase(std::string(record.topic)) > 0) {
                    batch_.reopen(record.topic);
                }
                batch_.add(record);
                items.push_back(item);
            }
        }
        if (items.empty()) continue;
        if (sent_.empty()) heard_ = now;
        session_->send(batch_);
        sent_.push_back(std::move(items));
    }
}

void RedisSink::receive(Time now, spi::Completions& out) {
    verdicts_.clear();
    const auto fault = session_->exchange(verdicts_);
    if (!verdicts_.empty()) {
        heard_ = now;
        // It works: what comes next is another trouble.
        down_.reset();
        tries_ = 0;
    }
    for (const Verdict& verdict : verdicts_) settle(verdict, out);
    if (fault) {
        lose(*fault, now, out);
    } else if (!sent_.empty() && now - heard_ > config_.stuck_after) {
        lose({"SILENT",
              "no answer for " + std::to_string(config_.stuck_after.count() / 1000) + " s"},
             now, out);
    }
}

void RedisSink::settle(const Verdict& verdict, spi::Completions& out) {
    if (sent_.empty()) return;
    const std::vector<Item> items = std::move(sent_.front());
    sent_.pop_front();
    std::size_t next = 0;
    for (const Verdict::Failed& failed : verdict.failed) {
        const std::size_t index = std::min(failed.index, items.size());
        for (; next < index; ++next) acknowledge(items[next], out);
        if (next >= items.size()) break;
        const Item& item = items[next++];
        const std::string part = "stream " + std::string(item.record.topic);
        closed_.emplace(item.record.topic);
        if (failed.error.empty()) {
            fail(item, behind("an earlier event of its stream failed; it goes again"), out);
        } else {
            fail(item,
                 {.error = to_error(fault_of_reply(failed.error), part + ", " + where()),
                  .part = part},
                 out);
        }
    }
    for (; next < items.size(); ++next) acknowledge(items[next], out);
}

// Of what was under way nobody knows what became of it: the next session does.
void RedisSink::lose(const Fault& fault, Time now, spi::Completions& out) {
    const ErrorInfo error = to_error(fault, where());
    *reached_ = session_->reached();
    session_.reset();
    closed_.clear();
    // An idle connection was closed.
    if (sent_.empty()) return;
    // Nothing is wrong with the server, which is there to be asked at once.
    const bool rebuilt = error.code == ErrorCode::kSinkRebuilt || blame_largest(fault, out);
    for (const auto& items : std::exchange(sent_, {})) {
        for (const Item& item : items) {
            fail(item,
                 rebuilt ? behind("the session began anew; it goes again")
                         : spi::FailedRecord{.error = error},
                 out);
        }
    }
    if (rebuilt) return;
    down_ = error;
    next_try_ = now + kTryAgainMin;
    host_ = (host_ + 1) % config_.hosts.size();
    fail_queue(error, out);
}

// Where the server says that something is too large, it is one part of an event, and of the first
// batch without an answer, as answers come in order.
bool RedisSink::blame_largest(const Fault& fault, spi::Completions& out) {
    const ErrorInfo error = to_error(fault, where());
    if (error.code != ErrorCode::kPayloadTooLarge || sent_.empty()) return false;
    std::vector<Item>& items = sent_.front();
    const auto guilty =
        std::max_element(items.begin(), items.end(), [](const Item& one, const Item& other) {
            return largest_part(one.record) < largest_part(other.record);
        });
    fail(*guilty, {.error = error, .suspect = items.size() > 1}, out);
    items.erase(guilty);
    return true;
}

void RedisSink::fail_queue(const ErrorInfo& error, spi::Completions& out) {
    for (const Item& item : queue_) fail(item, {.error = error}, out);
    queue_.clear();
}

void RedisSink::acknowledge(const Item& item, spi::Completions& out) {
    --records_;
    bytes_ -= item.bytes;
    out.acknowledged.push_back(item.record.token);
}

void RedisSink::fail(const Item& item, spi::FailedRecord failed, spi::Completions& out) {
    --records_;
    bytes_ -= item.bytes;
    failed.token = item.record.token;
    out.failed.push_back(std::move(failed));
}

std::string RedisSink::where() const {
    return name_of_host(config_.hosts[host_]);
}

}  // namespace outbox::redis
