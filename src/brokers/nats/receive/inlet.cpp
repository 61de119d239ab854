#include "brokers/nats/receive/inlet.h"

#include <algorithm>
#include <array>
#include <poll.h>
#include <utility>

#include <outbox/consumer/nats.h>

#include "brokers/nats/login.h"
#include "brokers/nats/message.h"
#include "consumer/queue/headers_json.h"
#include "net/header_line.h"

namespace outbox::nats {
namespace {

using consumer::Arrival;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kName = "outbox consumer";
constexpr std::string_view kAckPrefix = "$JS.ACK.";
constexpr milliseconds kExpires{5'000};  // a request, in the server
constexpr std::size_t kAskFirst = 16;    // messages, until it is known how large they are
constexpr std::size_t kAskAtOnce = 500;
constexpr milliseconds kGoodbye{1'000};  // for what is given back
constexpr milliseconds kPause{200};      // after a request that the server did not like
constexpr milliseconds kRecent{5'000};   // the server has written down what is older
constexpr std::size_t kMaxRecent = 10'000;
constexpr milliseconds kProof{100};     // how long a look at the consumer says whose the words are
constexpr milliseconds kMargin{1'000};  // of the server's timers

// Of "$JS.ACK.STREAM.CONSUMER.DELIVERED...", with domain and account before the stream in the form
// of later servers (ADR-15).
struct AckSubject {
    std::uint32_t deliveries = 1;
    std::uint64_t sequence = 0;  // in the stream
    std::uint64_t delivery = 0;  // of the consumer, to any member
};

std::optional<AckSubject> read_ack_subject(std::string_view subject) {
    if (!subject.starts_with(kAckPrefix)) return std::nullopt;
    std::array<std::string_view, 12> tokens;
    std::size_t count = 0;
    while (count < tokens.size()) {
        tokens[count++] = subject.substr(0, subject.find('.'));
        if (tokens[count - 1].size() == subject.size()) break;
        subject.remove_prefix(tokens[count - 1].size() + 1);
    }
    const std::size_t first = count == 9 ? 4 : 6;
    AckSubject ack;
    if (count < 9 ||
        !net::read_number<std::uint32_t>(tokens[first], 1, UINT32_MAX, ack.deliveries) ||
        !net::read_number<std::uint64_t>(tokens[first + 1], 1, UINT64_MAX, ack.sequence) ||
        !net::read_number<std::uint64_t>(tokens[first + 2], 1, UINT64_MAX, ack.delivery)) {
        return std::nullopt;
    }
    return ack;
}

Arrival arrival_of(const Frame& frame) {
    Arrival arrival;
    arrival.topic = frame.subject;
    arrival.payload = frame.payload;
    consumer::HeadersJson headers;
    HeaderLines lines(frame.headers);
    std::string_view line;
    std::string_view text;
    std::string streams_id;
    while (lines.next(line, text)) {
        auto [name, value] = net::decode_header(line, text);
        if (name == kIdHeader) {
            streams_id = std::move(value);
        } else if (name == kKeyHeader) {
            arrival.key = std::move(value);
        } else if (name == kNullHeader) {
            arrival.payload.reset();
        } else {
            headers.add(name, value);
            if (name == "id" && arrival.id.empty()) arrival.id = std::move(value);
        }
    }
    if (arrival.id.empty()) arrival.other_id = std::move(streams_id);
    arrival.headers = std::move(headers).text();
    return arrival;
}

}  // namespace

NatsInlet::NatsInlet(NatsConfig config) : config_(std::move(config)) {}

NatsInlet::~NatsInlet() {
    NatsInlet::disconnect();
}

ErrorInfo NatsInlet::error_of(const Fault& fault) const {
    return to_error(fault, name_of_host(config_.hosts[host_]) + ", " + queue());
}

std::string NatsInlet::queue() const {
    return "consumer '" + config_.consumer + "' of stream '" + config_.stream + "'";
}

Status NatsInlet::connect() {
    disconnect();
    auto connection = Connection::open(config_, host_, kName);
    if (!connection.ok()) return connection.error();
    connection_ = std::move(*connection);
    host_ = connection_->host();
    most_ = kAskFirst;
    largest_ = 0;
    if (const auto fault = join()) {
        connection_.reset();
        return error_of(*fault);
    }
    return {};
}

std::optional<ConsumerInfo> NatsInlet::look(milliseconds most, std::optional<Fault>& fault) {
    looked_at_ = Clock::now();
    const auto answer = connection_->ask(
        "$JS.API.CONSUMER.INFO." + config_.stream + "." + config_.consumer, "", most, fault);
    // Without the stream nobody answers: servers of a cluster leave that to its leader.
    if (fault && fault->name == "NO RESPONDERS") fault->name = "10076";
    if (!answer) return std::nullopt;
    fault = fault_of_answer(*answer);
    auto info = fault ? std::nullopt : read_consumer(*answer);
    if (!info && !fault) fault = Fault{"ENDED", "the server answers as no NATS does"};
    return info;
}

// The server takes our words by the message's number in the stream alone: said of a consumer that
// was made anew, they would mean other messages, which would be lost.
std::optional<ConsumerInfo> NatsInlet::look_at_ours(milliseconds most,
                                                    std::optional<Fault>& fault) {
    auto info = look(most, fault);
    if (!info) return std::nullopt;
    if (info->created == created_ && info->given.value_or(last_given_) >= last_given_) return info;
    fault = made_anew();
    return std::nullopt;
}

Fault NatsInlet::made_anew() {
    created_.clear();
    return {"ANEW", "it was removed and made anew"};
}

// What a member had when it died is given to others after `ack_wait`, and what is newer at once. So
// the first one that comes waits for that, and keys keep their order across its restarts.
std::optional<Fault> NatsInlet::join() {
    std::optional<Fault> fault;
    const auto info = look(config_.connect_timeout, fault);
    if (!info) return fault;
    if (info->push) return Fault{"PUSH", "it is a push consumer"};
    if (info->ack_policy != "explicit") {
        return Fault{"ACK POLICY", "its acknowledgements are '" + info->ack_policy + "'"};
    }
    const bool knows_them = settle_what_broke(info->created);
    const bool alone = info->waiting == 0;
    begin_at_ = Clock::now();
    if (alone && info->ack_pending > 0 && !knows_them) begin_at_ += info->ack_wait + kMargin;
    work_every_ = info->ack_wait_min / 3;
    work_at_ = Clock::now() + work_every_;
    last_given_ = 0;
    return std::nullopt;
}

// What was in our hands when a connection broke: the server may not have heard, or not written
// down, that it is done.
bool NatsInlet::settle_what_broke(const std::string& created) {
    const bool same = created_ == created;
    const bool knows_them = same && !lost_.empty();
    if (same) {
        for (const auto& [at, reply] : recent_) connection_->publish(reply, "", "", "+ACK");
        for (const std::string& reply : lost_) connection_->publish(reply, "", "", "-NAK");
    }
    created_ = created;
    if (!same) recent_.clear();
    lost_.clear();
    return knows_them;
}

// In their order, which is that in which they are sent again; and not to this member, whose request
// the server forgets when somebody looks (NATS 2.9 mixes up what it is to send again otherwise).
void NatsInlet::give_back() {
    connection_->stop_series();
    std::optional<Fault> fault;
    if (!replies_.empty() && look_at_ours(kGoodbye, fault)) {
        for (const auto& [number, reply] : replies_) connection_->publish(reply, "", "", "-NAK");
    }
    connection_->flush(kGoodbye);
}

void NatsInlet::disconnect() {
    if (connection_ != nullptr) give_back();
    connection_.reset();
    reading_ = false;
    taken_.clear();
    replies_.clear();
}

void NatsInlet::forget_old_words() {
    const auto now = Clock::now();
    while (recent_.size() > kMaxRecent ||
           (!recent_.empty() && now - recent_.front().first > kRecent)) {
        recent_.pop_front();
    }
}

ErrorInfo NatsInlet::broken(const Fault& fault) {
    forget_old_words();
    for (auto& [number, reply] : replies_) lost_.push_back(std::move(reply));
    replies_.clear();
    connection_.reset();
    return error_of(fault);
}

void NatsInlet::request(consumer::Amount room) {
    asked_for_ =
        std::min({room.records, most_,
                  std::max<std::size_t>(room.bytes / std::max<std::size_t>(largest_, 1), 1)});
    came_ = 0;
    largest_ = 0;
    const std::string payload =
        "{\"batch\":" + std::to_string(asked_for_) + ",\"expires\":" +
        std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(kExpires).count()) +
        "}";
    connection_->publish("$JS.API.CONSUMER.MSG.NEXT." + config_.stream + "." + config_.consumer,
                         connection_->series_subject(++request_), "", payload);
    reading_ = true;
    asked_at_ = Clock::now();
}

std::optional<Fault> NatsInlet::take(const Frame& frame) {
    if (const auto ack = read_ack_subject(frame.reply)) {
        if (ack->delivery <= last_given_) return made_anew();
        last_given_ = ack->delivery;
        Arrival arrival = arrival_of(frame);
        arrival.number = next_number_++;
        arrival.deliveries = ack->deliveries;
        arrival.where =
            "message " + std::to_string(ack->sequence) + " of stream '" + config_.stream + "'";
        replies_.emplace(arrival.number, frame.reply);
        largest_ = std::max(largest_, arrival.bytes());
        taken_.push_back(std::move(arrival));
        ++came_;
        if (came_ < asked_for_) return std::nullopt;
        reading_ = false;
        most_ = std::min(2 * most_, kAskAtOnce);
        return std::nullopt;
    }
    // The end of a request, which may be one that is over for us.
    const HeaderLines lines(frame.headers);
    const std::string_view status = lines.status();
    if (connection_->number_of(frame.subject) != request_ || status.empty() || status == "100") {
        return std::nullopt;
    }
    reading_ = false;
    if (status == "404" || status == "408") return std::nullopt;
    const std::string text = std::string(status) + " " + std::string(lines.description());
    if (status == "503") return Fault{"GONE", text};
    const bool deleted = lines.description().find("Deleted") != std::string_view::npos;
    if (deleted) return Fault{"GONE", text};
    // As many messages are in others' hands as may be, the leader has changed, or such: ask again.
    begin_at_ = Clock::now() + kPause;
    return std::nullopt;
}

std::optional<Fault> NatsInlet::listen() {
    auto ended = connection_->exchange();
    std::optional<Fault> fault;
    while (const auto frame = connection_->next(fault)) {
        fault = take(*frame);
        if (fault) break;
    }
    if (fault) return fault;
    if (ended) return ended;
    if (reading_ && Clock::now() - asked_at_ > kExpires + config_.connect_timeout) {
        return Fault{"SILENT", "no answer to a request for messages"};
    }
    return std::nullopt;
}

void NatsInlet::say_that_we_work() {
    if (Clock::now() < work_at_) return;
    work_at_ = Clock::now() + work_every_;
    for (const auto& [number, reply] : replies_) connection_->publish(reply, "", "", "+WPI");
}

Status NatsInlet::fetch(consumer::Amount room, milliseconds most, int wake_fd,
                        std::vector<Arrival>& out) {
    say_that_we_work();
    const bool has_room = room.records > 0 && room.bytes > 0;
    if (!reading_ && taken_.empty() && has_room && Clock::now() >= begin_at_) request(room);
    auto fault = listen();
    if (!fault && taken_.empty() && has_room) {
        connection_->wait(most, wake_fd);
        fault = listen();
    } else if (!fault && !has_room) {
        pollfd file{wake_fd, POLLIN, 0};
        ::poll(&file, 1, static_cast<int>(most.count()));
    }
    if (fault) return broken(*fault);
    const std::size_t until = out.size() + room.records;
    for (std::size_t bytes = 0; !taken_.empty() && out.size() < until && bytes < room.bytes;) {
        bytes += taken_.front().bytes();
        out.push_back(std::move(taken_.front()));
        taken_.pop_front();
    }
    return {};
}

Status NatsInlet::acknowledge(std::span<const std::uint64_t> numbers) {
    std::optional<Fault> fault;
    if (Clock::now() - looked_at_ > kProof && !look_at_ours(config_.connect_timeout, fault)) {
        return broken(*fault);
    }
    const auto now = Clock::now();
    for (const std::uint64_t number : numbers) {
        const auto found = replies_.find(number);
        if (found == replies_.end()) continue;
        connection_->publish(found->second, "", "", "+ACK");
        recent_.emplace_back(now, std::move(found->second));
        replies_.erase(found);
    }
    forget_old_words();
    fault = connection_->exchange();
    if (fault) return broken(*fault);
    return {};
}

Result<std::optional<std::int64_t>> NatsInlet::waiting() {
    std::optional<Fault> fault;
    const auto info = look_at_ours(config_.connect_timeout, fault);
    if (!info) return broken(*fault);
    return std::optional<std::int64_t>(info->pending);
}

}  // namespace outbox::nats

namespace outbox {

Queue nats_queue(std::string_view url) {
    const nats::NatsConfig config = nats::make_consumer_config(url).value_or_throw();
    nats::check_files(config).or_throw();
    return {.open = [config](const Queue::Limits& limits) -> std::unique_ptr<consumer::Inlet> {
        nats::NatsConfig timed = config;
        timed.connect_timeout = std::chrono::ceil<std::chrono::seconds>(limits.connect_timeout);
        return std::make_unique<nats::NatsInlet>(std::move(timed));
    }};
}

}  // namespace outbox
