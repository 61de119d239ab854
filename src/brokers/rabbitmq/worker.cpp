#include "brokers/rabbitmq/worker.h"

#include <algorithm>
#include <iterator>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "brokers/rabbitmq/message.h"

namespace outbox::rabbitmq {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kBurst = 128;  // messages between two looks for answers
// While a socket can be written at all, this much fits.
constexpr std::size_t kLookEveryBytes = std::size_t{16} << 10;
constexpr milliseconds kTryAgainMin{50};
constexpr milliseconds kTryAgainMax{1'000};
constexpr milliseconds kRound{100};  // with messages under way
constexpr milliseconds kIdleRound{1'000};
constexpr milliseconds kSuspectRound{10};  // while something waits for its time

std::chrono::steady_clock::time_point clock_now() {
    return std::chrono::steady_clock::now();
}

// A refusal comes in milliseconds where the broker reads at all.
constexpr milliseconds kJudged{500};
// A limit of channels is believed for so long; then one more is tried.
constexpr std::chrono::minutes kFewChannels{1};
// The broker counts the channels of a connection that has ended for a moment longer.
constexpr milliseconds kStillCounted{500};
constexpr std::chrono::hours kTellFewChannels{1};

}  // namespace

Worker::Worker(const RabbitmqConfig& config)
    : config_(config),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      alive_at_(clock_now()),
      thread_([this] { run(); }) {}

Worker::~Worker() {
    {
        const core::Lock lock(mutex_);
        stopping_ = true;
        if (cuttable_ != nullptr) cuttable_->cut();
        came_.notify_all();
    }
    ::eventfd_write(wake_, 1);
    thread_.join();
    ::close(wake_);
}

void Worker::take(std::vector<Item>& items) {
    const core::Lock lock(mutex_);
    under_way_ += items.size();
    std::move(items.begin(), items.end(), std::back_inserter(inbox_));
    items.clear();
    if (std::exchange(woken_, true)) return;
    ::eventfd_write(wake_, 1);
    came_.notify_all();
}

void Worker::collect(milliseconds most, Outcomes& out) {
    const core::Lock lock(mutex_);
    const auto known = [this]() OUTBOX_REQUIRES(mutex_) {
        return !outcomes_.acknowledged.empty() || !outcomes_.failed.empty();
    };
    if (!known()) came_.wait_for(mutex_, most, known);
    out = std::exchange(outcomes_, {});
    under_way_ -= out.acknowledged.size() + out.failed.size();
    // It hangs in the library: the broker takes no bytes and has not said why.
    const bool hangs = under_way_ > 0 && clock_now() - alive_at_ > config_.stuck_after;
    if (hangs && cuttable_ != nullptr) cuttable_->cut();
}

std::optional<ErrorInfo> Worker::blocked() {
    const core::Lock lock(mutex_);
    return blocked_told_;
}

void Worker::report(spi::SinkReport& out) {
    news_.report(out);
    const core::Lock lock(mutex_);
    if (few_channels_) out.notes.push_back(*std::exchange(few_channels_, std::nullopt));
}

void Worker::run() {
    while (take_inbox()) {
        now_ = clock_now();
        if (client_ == nullptr && !waiting_.empty()) {
            connect();
            tell();
            continue;  // Others may have come while it blocked, and go before a suspect.
        }
        if (client_ != nullptr) listen();
        if (client_ != nullptr) judge_silent();
        if (client_ != nullptr) send_some();
        if (client_ != nullptr) look_for_silence();
        tell();
        if (client_ == nullptr) continue;
        const bool to_send = may_send() && !has_turns_;
        const milliseconds most = has_turns_              ? kSuspectRound
                                  : to_send && !clogged_  ? milliseconds(0)
                                  : ways_.all_confirmed() ? kIdleRound
                                                          : kRound;
        if (client_->wait(most, to_send, wake_)) clogged_ = false;
    }
    set_client(nullptr);
}

// False: it is time to end. Without a connection and without work it waits here.
bool Worker::take_inbox() {
    const core::Lock lock(mutex_);
    const auto has_work = [this]() OUTBOX_REQUIRES(mutex_) { return stopping_ || !inbox_.empty(); };
    if (client_ == nullptr && waiting_.empty()) came_.wait(mutex_, has_work);
    alive_at_ = clock_now();
    for (const Item& item : inbox_) waiting_.add(item);
    inbox_.clear();
    if (std::exchange(woken_, false)) {
        eventfd_t count = 0;
        ::eventfd_read(wake_, &count);
    }
    return !stopping_;
}

void Worker::connect() {
    if (down_ && now_ < next_try_) {
        fail_all(*down_);
        return;
    }
    std::this_thread::sleep_until(next_try_);
    auto client = Client::open(config_, next_host_);
    now_ = clock_now();
    if (!client.ok() && client.error().code == ErrorCode::kNoRights &&
        now_ < too_many_channels_at_ + kStillCounted) {
        next_try_ = now_ + kTryAgainMin;
        return;
    }
    if (!client.ok()) {
        down_ = client.error();
        next_try_ = now_ + std::min(kTryAgainMin * (1U << std::min(tries_, 5U)), kTryAgainMax);
        ++tries_;
        fail_all(*down_);
        return;
    }
    down_.reset();
    tries_ = 0;
    unlooked_bytes_ = 0;
    clogged_ = false;
    next_host_ = (*client)->host();
    search_.began(next_host_, now_);
    max_frame_bytes_ = (*client)->max_frame_bytes();
    is_fresh_ = true;
    const std::size_t channels = (*client)->channels();
    ways_.begin(std::min(channels, most_channels_));
    if (channels < Ways::kMost) tell_few_channels(channels, where() + ": channel_max");
    set_client(std::move(*client));
}

void Worker::send_some() {
    if (blocked_) fail_all(*blocked_);
    look_for_more_channels();
    if (send_suspect() && may_send() && !clogged_) send_others();
    has_turns_ = search_.is_on() && !clogged_ && !waiting_.empty();
}

void Worker::send_others() {
    client_->gather(true);
    for (std::size_t i = 0; i < kBurst; ++i) {
        if (unlooked_bytes_ >= kLookEveryBytes) {
            unlooked_bytes_ = 0;
            clogged_ = !client_->wait(milliseconds(0), true, -1);
            if (clogged_) break;
        }
        const auto item = next();
        if (!item) break;
        if (!send(*item)) return;
    }
    client_->gather(false);
}

// What may go now, taken out. What has to wait for others of its kind, or of its channel, does so
// there.
std::optional<Item> Worker::next() {
    if (ways_.open() >= search_.window()) return std::nullopt;
    for (const Kind kind : Ways::kKinds) {
        while (ways_.waits(kind) && ways_.has_room(kind)) {
            Item item = ways_.pop(kind);
            const Kind its = kind_of(item.record);  // as it is judged now
            if (ways_.has_room(its)) return item;
            wait_for_room(its, item);
        }
    }
    // A stranger that is taken out has to go at once: the search counts those under way.
    const auto has_room = [this](const Item& item) { return ways_.has_room(kind_of(item.record)); };
    while (waiting_.has_others()) {
        const auto item = waiting_.next(now_, has_room);
        if (!item) break;
        const Kind kind = kind_of(item->record);
        if (ways_.has_room(kind)) return item;
        wait_for_room(kind, *item);
    }
    return std::nullopt;
}

bool Worker::may_send() const {
    if (ways_.open() >= search_.window()) return false;
    return waiting_.has_others() || ways_.any_may_go();
}

void Worker::wait_for_room(Kind kind, const Item& item) {
    ways_.wait(item, kind, suspicion_.is_known(item.record));
}

// For the next connection, or none.
void Worker::wait_anew() {
    for (const Kind kind : Ways::kKinds) {
        while (ways_.waits(kind)) waiting_.add(ways_.pop(kind));
    }
}

net::EndSearch::Line Worker::line() const {
    if (ways_.open() > 0) return net::EndSearch::Line::kBusy;
    return is_fresh_ ? net::EndSearch::Line::kFresh : net::EndSearch::Line::kIdle;
}

// False: it is nobody else's turn, or there is no connection any more.
bool Worker::send_suspect() {
    std::optional<Item> suspect;
    const auto turn = waiting_.turn(line(), now_, suspect, ways_.any_waits());
    if (turn == net::EndSearch::Turn::kFresh) let_go();
    if (suspect) static_cast<void>(send(*suspect));
    return turn == net::EndSearch::Turn::kOthers;
}

// False: there is no connection any more.
bool Worker::send(const Item& item) {
    const spi::Record& record = item.record;
    if (auto why = why_not_carried(record, max_frame_bytes_)) {
        fail(item, {ErrorCode::kRecordRefused,
                    Advice::kDeadLetter,
                    {},
                    "event " + std::string(record.id) + " fits no AMQP message: " + *why});
        return true;
    }
    unlooked_bytes_ += item.bytes;
    const Kind kind = kind_of(record);
    const std::uint16_t number = ways_.number_of(kind);
    ways_.push(item, kind, now_, ++serial_);
    search_.sent(record);
    is_fresh_ = false;
    std::optional<Fault> fault;
    if (!std::exchange(ways_.channel(number).is_open, true)) fault = client_->open_channel(number);
    if (!fault) fault = client_->publish(record, number);
    if (!fault) return true;
    listen();  // what the broker said before it went is the cause
    lost(*fault);
    return false;
}

void Worker::listen() {
    words_.clear();
    client_->hear(words_);
    const std::vector<Word> words = std::exchange(words_, {});
    for (const Word& word : words) {
        if (client_ == nullptr) return;  // given up on for what came before
        obey(word);
    }
}

void Worker::obey(const Word& word) {
    // Those of the connection are about no channel.
    Channel& channel = ways_.channel(std::max<std::uint16_t>(word.channel, 1));
    switch (word.kind) {
        case Word::Kind::kAck:
        case Word::Kind::kNack:
            channel.line.settle(word, [&](Sent& sent) { settle(sent, word); });
            channel.line.judge_before(word.tag, [this](const Sent& sent) { judged(sent); });
            break;
        case Word::Kind::kReturned:
            channel.line.mark_returned(word);
            break;
        case Word::Kind::kBlocked:
            blocked_since_ = now_;
            set_blocked(to_error(word.fault, where()));
            break;
        case Word::Kind::kUnblocked:
            set_blocked(std::nullopt);
            break;
        case Word::Kind::kClosed:
            if (!gives_back_guilty(channel, word.fault)) lost(word.fault);
            break;
        case Word::Kind::kEnded:
            lost(word.fault);
            break;
    }
}

void Worker::settle(Sent& sent, const Word& word) {
    const spi::Record& record = sent.item.record;
    const bool took = word.kind != Word::Kind::kNack && sent.returned == nullptr;
    search_.answered(record, took);
    if (!sent.judged) judged(sent);
    if (took) {
        out_.acknowledged.push_back(record.token);
        out_.bytes += sent.item.bytes;
        return;
    }
    const Fault fault =
        sent.returned == nullptr ? Fault{"NACK", "the broker does not take it"} : *sent.returned;
    const std::string part = part_of(routing_key_of(record));
    fail(sent.item, to_error(fault, part), part);
}

void Worker::judged(const Sent& sent) {
    suspicion_.passed(sent.item.record);
    ways_.judged(sent.kind);
}

// A queue that gives no confirms, as it hangs or has no majority, must not take the places of
// others: silence is no refusal, which comes at once.
void Worker::judge_silent() {
    if (blocked_ || clogged_) return;
    ways_.judge_before(now_ - kJudged, [this](const Sent& sent) { judged(sent); });
}

// What has been given up may be confirmed all the same; it is then sent once more.
void Worker::look_for_silence() {
    const bool blocked = blocked_ && now_ - blocked_since_ > config_.blocked_grace;
    std::size_t told = 0;
    for (Channel& channel : ways_.channels()) {
        channel.line.for_each_open([&](Sent& sent) {
            if (!blocked && now_ - sent.at <= config_.stuck_after) return false;
            if (blocked) {
                fail(sent.item, *blocked_);
            } else {
                const std::string part = part_of(routing_key_of(sent.item.record));
                fail(sent.item,
                     to_error(
                         {"SILENT", "no confirm for " +
                                        std::to_string(config_.stuck_after.count() / 1000) + " s"},
                         part),
                     part);
            }
            search_.given_up(sent.item.record);
            channel.line.give_up(sent);
            return true;
        });
        told += channel.line.told();
    }
    if (told > config_.max_records) lost({"SILENT", "too many messages without a confirm"});
}

// A message for which the broker says that it closed the channel is given back alone; what was
// under way there and has no confirm goes again. Other channels go on. False: it does not say.
bool Worker::gives_back_guilty(Channel& channel, const Fault& fault) {
    const std::uint64_t size = refused_size(fault);
    const ErrorInfo error = to_error(fault, where() + ", " + name_of_exchange(config_));
    std::vector<Item> again;
    std::vector<Item> guilty;
    Kind kind = Kind::kRefused;  // of those
    channel.line.for_each_open([&](const Sent& sent) {
        const spi::Record& record = sent.item.record;
        const bool is_guilty = size > 0 ? record.value.size() == size
                                        : refuses_routing_key(fault, routing_key_of(record));
        (is_guilty ? guilty : again).push_back(sent.item);
        if (is_guilty) kind = std::min(kind, sent.kind);
        // A refusal is an answer: it is no such message that ends connections.
        is_guilty ? search_.answered(record, false) : search_.given_up(record);
        return true;
    });
    if (guilty.empty()) return false;
    if (size > 0) suspicion_.refused_size(size);
    for (const Item& item : guilty) {
        if (size > 0) {
            fail(item,
                 {ErrorCode::kPayloadTooLarge, Advice::kDeadLetter, fault.name, error.message});
            continue;
        }
        const std::string_view key = routing_key_of(item.record);
        suspicion_.refused_key(key, kind == Kind::kProven, now_);
        fail(item, error, part_of(key));
    }
    waiting_.add_again(again);
    ways_.closed(channel, kind);
    return true;
}

void Worker::lost(const Fault& fault) {
    if (client_ == nullptr) return;
    ErrorInfo error = to_error(fault, where() + ", " + name_of_exchange(config_));
    bool bad_probes = false;
    // An idle connection may have ended long ago: what waits tries another one first.
    const bool was_idle = ways_.all_confirmed() && !is_fresh_;
    if (ways_.open() == 0) search_.ended_idle(now_);
    const bool goes_on = was_idle || has_too_many_channels(fault) ||
                         (may_be_a_message(fault) && goes_again(error, bad_probes));
    for (Channel& channel : ways_.channels()) {
        channel.line.for_each_open([&](const Sent& sent) {
            if (!goes_on) fail(sent.item, error, {}, bad_probes && is_suspect(sent.item));
            return true;
        });
    }
    let_go();
    set_blocked(std::nullopt);
    if (goes_on) return;
    down_ = std::move(error);
    next_try_ = now_ + kTryAgainMin;
    next_host_ = (next_host_ + 1) % config_.hosts.size();
    fail_all(*down_, bad_probes);
}

// The limit of the user, over all its connections: without the last one that was opened it goes on.
// The broker counts a channel that it has closed for a moment longer, so that one in its place may
// be the one too many.
bool Worker::has_too_many_channels(const Fault& fault) {
    if (!refuses_channel(fault)) return false;
    most_channels_ = std::max<std::size_t>(ways_.opened(), 2) - 1;
    most_channels_until_ = now_ + kFewChannels;
    too_many_channels_at_ = now_;
    next_try_ = now_ + kTryAgainMin;
    tell_few_channels(most_channels_, describe(to_error(fault, where())));
    std::vector<Item> again;
    for (Channel& channel : ways_.channels()) {
        channel.line.for_each_open([&](const Sent& sent) {
            search_.given_up(sent.item.record);
            again.push_back(sent.item);
            return true;
        });
    }
    waiting_.add_again(again);
    return true;
}

void Worker::look_for_more_channels() {
    if (most_channels_ == Ways::kMost || now_ < most_channels_until_) return;
    ++most_channels_;
    most_channels_until_ = now_ + kFewChannels;
    ways_.set_count(std::min<std::size_t>(client_->channels(), most_channels_));
}

void Worker::tell_few_channels(std::size_t channels, std::string why) {
    if (channels >= told_channels_ && now_ < channels_told_at_ + kTellFewChannels) return;
    told_channels_ = channels;
    channels_told_at_ = now_;
    const core::Lock lock(mutex_);
    few_channels_ = {spi::SinkReport::Level::kWarning,
                     "few_channels",
                     {{"channels", std::to_string(channels)}, {"error", std::move(why)}}};
}

// Of the connection, and what is under way on it. What waits does so for the next one.
void Worker::let_go() {
    for (Channel& channel : ways_.channels()) channel.line.clear();
    wait_anew();
    set_client(nullptr);
}

// For a message, perhaps: none has failed before that is known.
bool Worker::goes_again(ErrorInfo& error, bool& bad_probes) {
    std::vector<const Sent*> sent;
    for (Channel& channel : ways_.channels()) {
        channel.line.for_each_open([&](const Sent& one) {
            sent.push_back(&one);
            return true;
        });
    }
    if (sent.empty()) return false;
    std::sort(sent.begin(), sent.end(),
              [](const Sent* a, const Sent* b) { return a->serial < b->serial; });
    std::vector<Item> open;
    net::EndSearch::Records under_way;
    for (const Sent* one : sent) {
        open.push_back(one->item);
        under_way.push_back(&one->item.record);
    }
    const Item& first = open.front();
    const bool has_passed = search_.has_passed();
    switch (search_.ended(under_way, now_)) {
        case net::EndSearch::Next::kOutage:
            bad_probes = true;
            error = net::outage(error, under_way);
            return false;
        case net::EndSearch::Next::kOwnFault:
            fail(first, net::own_fault(error, first.record.id));
            break;
        case net::EndSearch::Next::kAgain:
            waiting_.add_again(open);
            news_.ended(error);
            break;
    }
    // Where others pass the host is well.
    if (!has_passed) next_host_ = (next_host_ + 1) % config_.hosts.size();
    next_try_ = has_passed ? now_ : now_ + kTryAgainMin;
    return true;
}

void Worker::fail_all(const ErrorInfo& error, bool bad_probes) {
    search_.away();
    wait_anew();
    for (const Item& item : waiting_.take_all()) {
        fail(item, error, {}, bad_probes && is_suspect(item));
    }
}

void Worker::set_client(std::unique_ptr<Client> client) {
    {
        const core::Lock lock(mutex_);
        cuttable_ = client.get();
        if (stopping_ && cuttable_ != nullptr) cuttable_->cut();
    }
    client_ = std::move(client);
}

void Worker::set_blocked(std::optional<ErrorInfo> error) {
    blocked_ = std::move(error);
    const core::Lock lock(mutex_);
    blocked_told_ = blocked_;
}

void Worker::tell() {
    if (out_.acknowledged.empty() && out_.failed.empty()) return;
    const core::Lock lock(mutex_);
    outcomes_.acknowledged.insert(outcomes_.acknowledged.end(), out_.acknowledged.begin(),
                                  out_.acknowledged.end());
    std::move(out_.failed.begin(), out_.failed.end(), std::back_inserter(outcomes_.failed));
    outcomes_.bytes += out_.bytes;
    out_ = {};
    came_.notify_all();
}

void Worker::fail(const Item& item, ErrorInfo error, std::string part, bool bad_probe) {
    out_.failed.push_back({.token = item.record.token,
                           .error = std::move(error),
                           .part = std::move(part),
                           .bad_probe = bad_probe});
    out_.bytes += item.bytes;
}

std::string Worker::part_of(std::string_view routing_key) const {
    return "routing key '" + std::string(routing_key) + "' of " + name_of_exchange(config_);
}

std::string Worker::where() const {
    return name_of_host(config_.hosts[client_ == nullptr ? next_host_ : client_->host()]);
}

}  // namespace outbox::rabbitmq
