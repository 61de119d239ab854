#include "brokers/redis/receive/inlet.h"

#include <algorithm>
#include <poll.h>
#include <random>
#include <set>
#include <utility>

#include <outbox/consumer/redis.h>

#include "consumer/queue/headers_json.h"
#include "net/certificates.h"

namespace outbox::redis {
namespace {

using consumer::Arrival;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kNamePrefix = "outbox-";
constexpr milliseconds kLook{5'000};  // for members that have gone
// One whose connection stands and that says nothing hangs: it would speak at each look.
constexpr std::int64_t kHangsAfterMs = 60'000;
constexpr milliseconds kBlock{5'000};   // in the server, for new entries
constexpr std::size_t kReadFirst = 16;  // entries, until it is known how large they are
constexpr std::size_t kReadAtOnce = 500;
constexpr std::size_t kClaimAtOnce = 500;
// Of ids; the very last one stands for ">", new entries, inside the server.
constexpr std::string_view kBehindAll = "18446744073709551615-0";

std::string new_member() {
    std::random_device random;
    std::string name(kNamePrefix);
    for (int i = 0; i < 4; ++i) name += std::to_string(random()) + (i < 3 ? "-" : "");
    return name;
}

Fault strange() {
    return {"ENDED", "the server answers as no Redis does"};
}

// Of a map in an answer: names and values in turn.
const redisReply* field_of(const redisReply& map, std::string_view name) {
    const auto elements = elements_of(map);
    for (std::size_t i = 0; i + 1 < elements.size(); i += 2) {
        if (text_of(elements[i]) == name) return elements[i + 1];
    }
    return nullptr;
}

std::int64_t integer_of(const redisReply* reply) {
    return reply != nullptr && reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
}

// Names of all connections, of the server's list of them.
std::set<std::string, std::less<>> names_in(std::string_view list) {
    std::set<std::string, std::less<>> names;
    constexpr std::string_view kName = " name=";
    for (std::size_t at = list.find(kName); at != std::string_view::npos;
         at = list.find(kName, at)) {
        at += kName.size();
        names.emplace(list.substr(at, list.find_first_of(" \n", at) - at));
    }
    return names;
}

Arrival arrival_of(const redisReply& fields) {
    Arrival arrival;
    consumer::HeadersJson headers;
    const auto elements = elements_of(fields);
    for (std::size_t i = 0; i + 1 < elements.size(); i += 2) {
        const std::string_view name = text_of(elements[i]);
        const std::string_view value = text_of(elements[i + 1]);
        if (name == "id" && arrival.id.empty()) {
            arrival.id = value;
        } else if (name == "key" && !arrival.key) {
            arrival.key = value;
        } else if (name == "value" && !arrival.payload) {
            arrival.payload = value;
        } else {
            headers.add(name, value);
        }
    }
    arrival.headers = std::move(headers).text();
    return arrival;
}

}  // namespace

RedisInlet::RedisInlet(RedisConfig config, const Queue::Limits& /*limits*/)
    : config_(std::move(config)) {}

RedisInlet::~RedisInlet() = default;

ErrorInfo RedisInlet::error_of(const Fault& fault) const {
    return to_error(fault, name_of_host(config_.hosts[host_]) + ", " + queue());
}

std::string RedisInlet::queue() const {
    return "group '" + config_.group + "' of stream '" + config_.stream + "'";
}

Reply RedisInlet::ask(std::span<const std::string_view> command, std::optional<Fault>& fault) {
    return asker_->ask(command, config_.connect_timeout, fault);
}

Status RedisInlet::connect() {
    disconnect();
    // Reading in a group writes, which a replica does not.
    const auto takes_writes = [this](Connection& candidate) {
        std::optional<Fault> fault;
        const Reply role = candidate.ask({"ROLE"}, config_.connect_timeout, fault);
        const bool replica = !fault && role->elements > 0 && text_of(role->element[0]) == "slave";
        if (replica) fault = Fault{"READONLY", "it is a replica"};
        return fault;
    };
    auto asker = Connection::open(config_, host_, takes_writes);
    if (!asker.ok()) return asker.error();
    asker_ = std::move(*asker);
    host_ = asker_->host();
    RedisConfig same = config_;
    same.hosts = {config_.hosts[host_]};
    auto reader = Connection::open(same, 0, takes_writes);
    if (!reader.ok()) return reader.error();
    reader_ = std::move(*reader);
    most_ = kReadFirst;
    largest_ = 0;
    if (const auto fault = join()) return error_of(*fault);
    return {};
}

// A name first, on both: who is pending for a name that no connection has is gone, and gets no
// more.
std::optional<Fault> RedisInlet::join() {
    member_ = new_member();
    std::optional<Fault> fault;
    ask({"CLIENT", "SETNAME", member_}, fault);
    if (!fault) reader_->ask({"CLIENT", "SETNAME", member_}, config_.connect_timeout, fault);
    if (!fault) ask({"XGROUP", "CREATECONSUMER", config_.stream, config_.group, member_}, fault);
    return fault ? fault : take_over();
}

void RedisInlet::disconnect() {
    reader_.reset();
    asker_.reset();
    reading_ = false;
    taken_.clear();
    entries_.clear();
}

// Before anything newer is read, so that the order of keys is kept across a restart.
std::optional<Fault> RedisInlet::take_over() {
    next_look_ = Clock::now() + kLook;
    std::optional<Fault> fault;
    const Reply members = ask({"XINFO", "CONSUMERS", config_.stream, config_.group}, fault);
    if (fault) return fault;
    const Reply list = ask({"CLIENT", "LIST", "TYPE", "NORMAL"}, fault);
    if (fault) return fault;
    const auto connected = names_in(text_of(list.get()));
    for (const redisReply* member : elements_of(*members)) {
        const redisReply* name = field_of(*member, "name");
        if (name == nullptr) return strange();
        const std::string_view text = text_of(name);
        if (!text.starts_with(kNamePrefix) || text == member_) continue;
        const bool gone = !connected.contains(text);
        const bool hangs = integer_of(field_of(*member, "idle")) > kHangsAfterMs;
        if (!gone && !hangs) continue;
        fault = claim_from(std::string(text));
        if (fault) return fault;
        // One that hangs may still be given entries, which would be lost with it.
        if (gone) ask({"XGROUP", "DELCONSUMER", config_.stream, config_.group, text}, fault);
        if (fault) return fault;
    }
    // A read of nothing says that this one does not hang.
    ask({"XREADGROUP", "GROUP", config_.group, member_, "COUNT", "1", "STREAMS", config_.stream,
         kBehindAll},
        fault);
    return fault;
}

std::optional<Fault> RedisInlet::claim_from(const std::string& member) {
    const std::string at_once = std::to_string(kClaimAtOnce);
    std::optional<Fault> fault;
    while (true) {
        const Reply pending =
            ask({"XPENDING", config_.stream, config_.group, "-", "+", at_once, member}, fault);
        if (fault) return fault;
        std::vector<std::string_view> command{"XCLAIM", config_.stream, config_.group, member_,
                                              "0"};
        std::map<std::string, std::uint32_t, std::less<>> deliveries;
        for (const redisReply* one : elements_of(*pending)) {
            const auto parts = elements_of(*one);
            if (parts.size() < 4) return strange();
            command.push_back(text_of(parts[0]));
            deliveries[std::string(text_of(parts[0]))] =
                static_cast<std::uint32_t>(integer_of(parts[3]));
        }
        if (deliveries.empty()) break;
        const Reply claimed = ask(command, fault);
        if (fault) return fault;
        for (const redisReply* entry : elements_of(*claimed)) {
            const auto parts = elements_of(*entry);
            const auto known =
                parts.empty() ? deliveries.end() : deliveries.find(text_of(parts[0]));
            if (known != deliveries.end()) take(*entry, known->second + 1);
        }
    }
    return std::nullopt;
}

// An entry that was removed from the stream meanwhile has no fields.
void RedisInlet::take(const redisReply& entry, std::uint32_t deliveries) {
    const auto parts = elements_of(entry);
    if (parts.size() < 2 || parts[1]->type != REDIS_REPLY_ARRAY) return;
    Arrival arrival = arrival_of(*parts[1]);
    arrival.number = next_number_++;
    arrival.topic = config_.stream;
    arrival.deliveries = deliveries;
    const std::string id(text_of(parts[0]));
    arrival.where = "entry " + id + " of stream '" + config_.stream + "'";
    entries_.emplace(arrival.number, id);
    taken_.push_back(std::move(arrival));
}

void RedisInlet::request(consumer::Amount room) {
    asked_for_ =
        std::min({room.records, most_,
                  std::max<std::size_t>(room.bytes / std::max<std::size_t>(largest_, 1), 1)});
    std::string text;
    append_command(text, 11);
    for (const std::string_view part :
         {std::string_view("XREADGROUP"), std::string_view("GROUP"),
          std::string_view(config_.group), std::string_view(member_), std::string_view("COUNT")}) {
        append_argument(text, part);
    }
    append_argument(text, static_cast<std::int64_t>(asked_for_));
    append_argument(text, "BLOCK");
    append_argument(text, kBlock.count());
    append_argument(text, "STREAMS");
    append_argument(text, config_.stream);
    append_argument(text, ">");
    reader_->write(text);
    reading_ = true;
    asked_at_ = Clock::now();
}

std::optional<Fault> RedisInlet::listen() {
    auto ended = reader_->exchange();
    std::optional<Fault> fault;
    while (const Reply reply = reader_->next(fault)) {
        reading_ = false;
        if (reply->type == REDIS_REPLY_ERROR) return fault_of_reply(text_of(reply.get()));
        const std::size_t before = taken_.size();
        for (const redisReply* stream : elements_of(*reply)) {
            const auto parts = elements_of(*stream);
            if (parts.size() < 2) return strange();
            for (const redisReply* entry : elements_of(*parts[1])) take(*entry, 1);
        }
        if (taken_.size() == before) continue;
        largest_ = 0;
        for (std::size_t i = before; i < taken_.size(); ++i) {
            largest_ = std::max(largest_, taken_[i].bytes());
        }
        if (taken_.size() - before >= asked_for_) most_ = std::min(2 * most_, kReadAtOnce);
    }
    if (fault) return fault;
    if (ended) return ended;
    if (reading_ && Clock::now() - asked_at_ > kBlock + config_.connect_timeout) {
        return Fault{"SILENT", "no answer to XREADGROUP"};
    }
    return std::nullopt;
}

Status RedisInlet::fetch(consumer::Amount room, milliseconds most, int wake_fd,
                         std::vector<Arrival>& out) {
    if (Clock::now() >= next_look_) {
        if (const auto fault = take_over()) return error_of(*fault);
    }
    const bool has_room = room.records > 0 && room.bytes > 0;
    if (!reading_ && taken_.empty() && has_room) request(room);
    auto fault = listen();
    if (!fault && taken_.empty()) {
        reader_->wait(most, wake_fd);
        fault = listen();
    } else if (!fault && !has_room) {
        pollfd file{wake_fd, POLLIN, 0};
        ::poll(&file, 1, static_cast<int>(most.count()));
    }
    if (fault) return error_of(*fault);
    const std::size_t until = out.size() + room.records;
    for (std::size_t bytes = 0; !taken_.empty() && out.size() < until && bytes < room.bytes;) {
        bytes += taken_.front().bytes();
        out.push_back(std::move(taken_.front()));
        taken_.pop_front();
    }
    return {};
}

Status RedisInlet::acknowledge(std::span<const std::uint64_t> numbers) {
    std::vector<std::string_view> command{"XACK", config_.stream, config_.group};
    for (const std::uint64_t number : numbers) {
        const auto found = entries_.find(number);
        if (found != entries_.end()) command.emplace_back(found->second);
    }
    std::optional<Fault> fault;
    if (command.size() > 3) ask(command, fault);
    if (fault) return error_of(*fault);
    for (const std::uint64_t number : numbers) entries_.erase(number);
    return {};
}

// Redis before 7 does not say it; a later one does not know it after XGROUP SETID, or for a group
// that began in the middle, or where an entry was deleted that the group has not read.
Result<std::optional<std::int64_t>> RedisInlet::waiting() {
    std::optional<Fault> fault;
    const Reply groups = ask({"XINFO", "GROUPS", config_.stream}, fault);
    if (fault) return error_of(*fault);
    for (const redisReply* group : elements_of(*groups)) {
        const redisReply* name = field_of(*group, "name");
        if (name != nullptr && text_of(name) == config_.group) {
            const redisReply* lag = field_of(*group, "lag");
            const bool is_known = lag != nullptr && lag->type == REDIS_REPLY_INTEGER;
            return is_known ? std::optional<std::int64_t>(lag->integer) : std::nullopt;
        }
    }
    return error_of({"NOGROUP", "there is no such group"});
}

}  // namespace outbox::redis

namespace outbox {

Queue redis_queue(std::string_view url) {
    const redis::RedisConfig config = redis::make_group_config(url).value_or_throw();
    net::check_files(config).or_throw();
    return {.open = [config](const Queue::Limits& limits) -> std::unique_ptr<consumer::Inlet> {
        redis::RedisConfig timed = config;
        timed.connect_timeout = std::chrono::ceil<std::chrono::seconds>(limits.connect_timeout);
        return std::make_unique<redis::RedisInlet>(std::move(timed), limits);
    }};
}

}  // namespace outbox
