#include "brokers/redis/session.h"

#include <charconv>
#include <utility>

#include "brokers/redis/connection.h"
#include "brokers/redis/scripts.h"

namespace outbox::redis {
namespace {

// Its name for EVALSHA.
std::string load_script(Connection& connection, const RedisConfig& config, std::string_view script,
                        std::optional<Fault>& fault) {
    const Reply reply = connection.ask({"SCRIPT", "LOAD", script}, config.connect_timeout, fault);
    if (reply != nullptr) return std::string(text_of(reply.get()));
    // A Sentinel knows few commands.
    std::optional<Fault> unknown;
    const Reply role = connection.ask({"ROLE"}, config.connect_timeout, unknown);
    if (role != nullptr && role->elements > 0 && text_of(role->element[0]) == "sentinel") {
        fault->name = "SENTINEL";
    }
    return {};
}

// Index and error in turn.
std::optional<Verdict> verdict_of(const redisReply& reply) {
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements % 2 != 0) return std::nullopt;
    Verdict verdict;
    const auto elements = elements_of(reply);
    for (std::size_t i = 0; i + 1 < elements.size(); i += 2) {
        if (elements[i]->type != REDIS_REPLY_INTEGER) return std::nullopt;
        verdict.failed.push_back({static_cast<std::size_t>(elements[i]->integer),
                                  std::string(text_of(elements[i + 1]))});
    }
    return verdict;
}

// Of a field of the session's state, which is text; 0 where it is not there.
std::int64_t number_of(const redisReply& reply) {
    const std::string_view text = text_of(&reply);
    std::int64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

// Of INFO's lines "name:value".
std::string_view info_of(std::string_view info, std::string_view name) {
    const std::string line = "\n" + std::string(name) + ":";
    const std::size_t at = info.find(line);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = info.substr(at + line.size());
    return rest.substr(0, rest.find_first_of("\r\n"));
}

}  // namespace

Session::Session(const RedisConfig& config)
    : config_(config),
      session_key_(session_key(config.producer)),
      ids_key_(ids_key(config.producer)) {}

Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::begin(const RedisConfig& config, std::size_t first) {
    std::unique_ptr<Session> session(new Session(config));
    auto connection = Connection::open(
        config, first, [&](Connection& candidate) { return session->start(candidate); });
    if (!connection.ok()) return connection.error();
    session->connection_ = std::move(*connection);
    return session;
}

std::optional<Fault> Session::start(Connection& connection) {
    std::optional<Fault> fault;
    const std::string begin = load_script(connection, config_, kBeginScript, fault);
    if (!fault) batch_script_ = load_script(connection, config_, kBatchScript, fault);
    if (fault) return fault;
    const Reply begun = connection.ask(
        {"EVALSHA", begin, "2", session_key_, ids_key_, std::to_string(config_.dedup_window),
         std::to_string(config_.keep_memory.count())},
        config_.connect_timeout, fault);
    if (fault) return fault;
    if (begun->type != REDIS_REPLY_ARRAY || begun->elements != 4 ||
        begun->element[0]->type != REDIS_REPLY_INTEGER) {
        return Fault{"ENDED", "the server answers as no Redis does"};
    }
    reached_ = {begun->element[0]->integer, 0};
    before_ = {number_of(*begun->element[2]), number_of(*begun->element[3])};
    ids_.clear();
    for (const redisReply* id : elements_of(*begun->element[1])) ids_.emplace(text_of(id));
    ids_.erase("");
    return std::nullopt;
}

std::size_t Session::host() const {
    return connection_->host();
}

void Session::send(Batch& batch) {
    text_.clear();
    batch.seal({.script = batch_script_,
                .session_key = session_key_,
                .ids_key = ids_key_,
                .session = reached_.session,
                .number = ++batches_,
                .window = config_.dedup_window,
                .max_len = config_.max_len,
                .keep_memory = config_.keep_memory},
               text_);
    connection_->write(text_);
}

std::optional<Fault> Session::exchange(std::vector<Verdict>& out) {
    auto ended = connection_->exchange();
    std::optional<Fault> fault;
    while (const Reply reply = connection_->next(fault)) {
        if (reply->type == REDIS_REPLY_ERROR) return fault_of_reply(text_of(reply.get()));
        auto verdict = verdict_of(*reply);
        if (!verdict) return Fault{"ENDED", "the server answers as no Redis does"};
        out.push_back(*std::move(verdict));
        ++reached_.batch;
    }
    return fault ? fault : ended;
}

void Session::wait(std::chrono::milliseconds most) const {
    connection_->wait(most);
}

Status look_at_server(const RedisConfig& config) {
    const auto connection =
        Connection::open(config, 0, [&](Connection& candidate) -> std::optional<Fault> {
            std::optional<Fault> fault;
            const std::string probe = load_script(candidate, config, kProbeScript, fault);
            if (fault) return fault;
            candidate.ask({"EVALSHA", probe, "1", probe_key(config.producer)},
                          config.connect_timeout, fault);
            return fault;
        });
    return connection.status();
}

Result<std::string> describe_server(const RedisConfig& config) {
    std::string info;
    const auto connection =
        Connection::open(config, 0, [&](Connection& candidate) -> std::optional<Fault> {
            std::optional<Fault> fault;
            const Reply reply = candidate.ask({"INFO"}, config.connect_timeout, fault);
            if (fault && fault->name == "NOPERM") return std::nullopt;
            info = "\n" + std::string(text_of(reply.get()));
            return fault;
        });
    if (!connection.ok()) return connection.error();
    std::string text = config.dedup_window == 0 ? "drops no repeats"
                                                : "drops repeats among the last " +
                                                      std::to_string(config.dedup_window) + " ids";
    if (info.empty()) return text + "; what it keeps is not known: the user may not ask (INFO)";
    const std::string_view policy = info_of(info, "maxmemory_policy");
    if (policy.starts_with("allkeys")) {
        return ErrorInfo{ErrorCode::kConfigInvalid,
                         Advice::kStop,
                         {},
                         name_of_host(config.hosts[(*connection)->host()]) +
                             " throws streams away when its memory is full (maxmemory-policy " +
                             std::string(policy) + "): set it to noeviction"};
    }
    return text + "; append-only file " + (info_of(info, "aof_enabled") == "1" ? "on" : "off");
}

}  // namespace outbox::redis
