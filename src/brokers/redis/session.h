#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <outbox/result.h>

#include "brokers/redis/batch.h"
#include "brokers/redis/config.h"
#include "brokers/redis/errors.h"

namespace outbox::redis {

class Connection;

/// What became of a batch.
struct Verdict {
    struct Failed {
        std::size_t index = 0;  ///< Of the record in its batch.
        std::string error;      ///< As the server says it; empty: it lay behind another.
    };
    std::vector<Failed> failed;
};

/// How far a producer has come: a session and the last batch in it that the server took.
struct Place {
    std::int64_t session = 0;  ///< 0: none is known.
    std::int64_t batch = 0;
};

/// A connection to the primary on which batches go in order, from the moment at which all sessions
/// before it have ended.
class Session {
  public:
    /// Connects and begins; blocks up to the connect timeout for each host, the one at `first`
    /// before the others. Errors: those of the table.
    static Result<std::unique_ptr<Session>> begin(const RedisConfig& config, std::size_t first);
    ~Session();

    [[nodiscard]] std::size_t host() const;
    /// Up to the last verdict.
    [[nodiscard]] const Place& reached() const { return reached_; }
    /// What the server knew of the producer as this session began.
    [[nodiscard]] const Place& before() const { return before_; }
    /// It was appended to its stream before this session.
    [[nodiscard]] bool has(std::string_view id) const { return ids_.contains(id); }
    /// Sends with the next `exchange`.
    void send(Batch& batch);
    /// Sends and receives what can be at once; verdicts are in the order of the batches. A fault
    /// ends the session.
    std::optional<Fault> exchange(std::vector<Verdict>& out);
    void wait(std::chrono::milliseconds most) const;

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>()(text);
        }
    };

    explicit Session(const RedisConfig& config);
    std::optional<Fault> start(Connection& connection);

    const RedisConfig& config_;
    const std::string session_key_;
    const std::string ids_key_;
    std::unique_ptr<Connection> connection_;
    std::string batch_script_;
    Place reached_;
    Place before_;
    std::int64_t batches_ = 0;
    std::unordered_set<std::string, Hash, std::equal_to<>> ids_;
    std::string text_;  // of a batch
};

/// Whether a session could begin and batches be appended, as far as looking tells. Changes nothing.
Status look_at_server(const RedisConfig& config);

/// Which repeats are dropped, and what becomes of the data: "drops repeats among the last 10000
/// ids; append-only file on". Errors: those of the table, and kConfigInvalid where the server
/// throws streams away when its memory is full.
Result<std::string> describe_server(const RedisConfig& config);

}  // namespace outbox::redis
