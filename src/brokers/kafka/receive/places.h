#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "brokers/kafka/receive/client.h"
#include "brokers/kafka/receive/partition.h"
#include "brokers/kafka/receive/rereader.h"
#include "consumer/workers/hub.h"

namespace outbox::consumer::kafka {

/// Where each partition goes on, and whether its log is still the one of what was applied: a topic
/// that is made anew has the name, the partitions and the offsets of the old one. In the offset
/// modes the database says where, and what does not fit is quarantined; else the group's offset
/// does, and what does not fit is read from its beginning, since the inbox knows what was applied.
/// Used by the polling thread.
class Places {
  public:
    /// `log` and `partitions` are the consumer's and outlive it, as does `client`. `first`: where
    /// reading begins where nothing else is known.
    Places(Hub& hub, BrokerStore& log, const Start& first,
           std::map<std::string, std::string> settings, Partitions& partitions);
    void use(Client& client) { client_ = &client; }

    /// Partitions that the group gives us.
    std::vector<Start> begin(const std::vector<TopicPartition>& given);

    /// Whether a record is of the log that was applied, and the next one of it. False: it is not to
    /// be handed over.
    bool is_next(Partition& partition, const Record& record);

    /// A record of each log that has to be there still, now that more has come: else that is of
    /// another. `needed`: one whose proof cannot be had now is read again later.
    using Proofs = std::map<TopicPartition, Witness>;
    void prove(const Proofs& proofs, bool needed = true);

    /// What the client said of the ends of logs, once the records before it were handed over.
    void ended(const TopicPartition& where, std::int64_t offset) {
        ended_.push_back({where, offset, {}});
    }
    void out_of_range(const TopicPartition& where) { out_of_range_.push_back(where); }
    void look_at_ends();

    /// Partitions whose place is not known, and those that are held once a person has changed it;
    /// now and then also those where nothing comes.
    void again();

    /// What Kafka may be told of what is finished.
    std::vector<PlacedOffset> to_tell(
        const std::vector<std::pair<TopicPartition, Partition::Finished>>& finished);

  private:
    Start begin_by_offset(Partition& partition);
    std::vector<Start> begin_by_group(const std::vector<TopicPartition>& given);
    /// Why each log is another, nothing where it is the same. One that is missing did not answer.
    using Compared = std::map<TopicPartition, std::optional<std::string>>;
    [[nodiscard]] Compared compare(const Proofs& proofs);
    [[nodiscard]] std::optional<std::string> differs(
        const TopicPartition& where, const Witness& known,
        const std::optional<Rereader::Found>& found) const;
    void look_at_quiet();
    void beyond(Partition& partition);
    void read_from(Partition& partition, const Start& start);
    [[nodiscard]] std::int64_t committed_end(const Partition& partition) const;
    void has_changed(Partition& partition, const std::string& why);
    void stop_reading(Partition& partition, const std::string& why);
    Start quarantine(Partition& partition, std::optional<LogPlace> known, const std::string& why);
    Start later(Partition& partition, const ErrorInfo& error);
    void misplace(Partition& partition);
    void say_changed(const TopicPartition& where, const std::string& what);
    [[nodiscard]] bool place_changed(const Partition& partition);

    Hub& hub_;
    BrokerStore& log_;
    const Start first_start_;
    Rereader rereader_;
    Partitions& partitions_;
    Client* client_ = nullptr;
    std::chrono::milliseconds placing_wait_;
    std::chrono::steady_clock::duration patience_;
    struct Silence {
        std::chrono::steady_clock::time_point until;
        std::chrono::steady_clock::duration length{};
    };
    std::map<TopicPartition, Silence> silent_;  ///< Those that did not answer in time.
    std::vector<PlacedOffset> ended_;
    std::vector<TopicPartition> out_of_range_;
    std::chrono::steady_clock::time_point next_placing_;
    std::chrono::steady_clock::time_point next_look_;
    std::chrono::steady_clock::time_point next_quiet_;
};

}  // namespace outbox::consumer::kafka
