#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/clock.h"
#include "mailbox/writer.h"
#include "webhook/event_filter.h"
#include "webhook/queues.h"
#include "webhook/remark.h"
#include "webhook/store.h"

namespace outbox::webhook {

/// Turns events into deliveries, one for each endpoint that wants the event, disabled ones
/// included. An event that nobody wants is written nowhere. An endpoint whose queue is full, which
/// is looked at, misses events, from the next batch on. After that it is as one that is new: it
/// gets events once all that went before is recorded, which is waited for, as what comes again
/// after a crash would otherwise stand behind later events. One that is new is behind all others,
/// so that an event of which a part is written goes to it, too.
class FanOut final : public mailbox::Client {
  public:
    /// So long a call of `insert_some` begins further transactions.
    static constexpr std::int64_t kInsertForUs = 5'000'000;
    /// What takes less leaves room for a transaction twice as large.
    static constexpr std::int64_t kQuickUs = 3'500'000;
    /// Deliveries of one transaction.
    static constexpr std::size_t kMaxTargets = 10'000;

    /// `queues` and `clock` outlive it.
    FanOut(std::unique_ptr<Inlet> inlet, Queues& queues, const core::Clock& clock)
        : inlet_(std::move(inlet)), queues_(queues), clock_(clock) {}

    Status prepare() override { return inlet_->prepare(); }
    Status look() override { return inlet_->look().status(); }
    Result<std::string> destination() override { return inlet_->destination(); }
    /// Reads which endpoints there are; false while some may not get events yet.
    Result<bool> ready() override;
    void all_recorded() override { all_recorded_ = true; }
    /// `insert_some` until all are in.
    Status insert(std::span<const mailbox::Row> rows) override;
    /// In several transactions where there are very many deliveries, and begins none after
    /// `kInsertForUs`, or an error behind events that are in. An event of which a part is written
    /// goes on behind that when it comes again. Where the server ends a transaction that takes too
    /// long, smaller ones follow, for `kInsertForUs` once more; it is an error where that held a
    /// single delivery. Errors: those of `Inlet`, and kRecordRefused/
    /// dead_letter, before anything of its transaction is written, where a request carries no
    /// header of an event's.
    Result<std::size_t> insert_some(std::span<const mailbox::Row> rows) override;

    /// Adds what endpoints missed to their totals. What cannot be counted now, as another
    /// transaction holds the endpoint's row or the database is away, is by the next call;
    /// `insert` calls it, too.
    void count_missed();
    /// Events that an endpoint will not get, by this process.
    [[nodiscard]] std::int64_t missed_total() const { return missed_total_; }
    /// Whose queue is full, and how many it missed since the last line of it: one line in
    /// `kQuietUs`, or the `last` one.
    [[nodiscard]] std::vector<Remark> take_remarks(bool last = false);

  private:
    // What this process knows of an endpoint's.
    struct Queue {
        bool misses = false;  // events, from the first that found it full
        std::int64_t look_again_us = 0;
        bool looked_at = false;
        std::int64_t uncounted = 0;  // events that are not in the endpoint's total yet
        std::int64_t untold = 0;     // and not in the log
        std::int64_t quiet_until_us = 0;
    };
    struct Subscriber {
        std::string id;
        std::int64_t created_at_us = 0;
        std::uint64_t number = 0;  // rises with each that is let in
        EventFilter filter;
        bool all_tenants = true;
        std::string tenant;
        Queue queue;
    };

    Status refresh();
    void look_at_queues();
    [[nodiscard]] bool look_at_queue(Subscriber& one);
    // False: one that could get events again may not yet.
    [[nodiscard]] bool end_misses();
    [[nodiscard]] std::uint32_t first_left(std::string_view event) const;
    [[nodiscard]] std::size_t choose(std::span<const mailbox::Row> rows);
    [[nodiscard]] Status look_at_headers() const;
    Status write();
    void remember(std::size_t whole);
    void fit(std::int64_t took_us);

    std::unique_ptr<Inlet> inlet_;
    Queues& queues_;
    const core::Clock& clock_;
    std::vector<Subscriber> subscribers_;  // by number
    std::uint64_t last_number_ = 0;        // that was given
    std::string version_;                  // of these
    std::int64_t refreshed_us_ = 0;        // 0: not yet
    bool new_ones_wait_ = false;
    std::int64_t next_look_again_us_ = 0;  // at the one that misses whose last look is longest ago
    bool all_recorded_ = true;             // nothing written by this process may come again
    std::vector<Event> events_;
    std::vector<std::string_view> endpoints_;
    std::vector<Target> targets_;
    std::uint64_t cut_at_ = 0;          // the subscriber at which the last event goes on
    std::vector<std::int64_t> missed_;  // by subscriber, of the transaction
    // Of events of which a part is written, the number of the subscriber at which they go on.
    std::unordered_map<std::string, std::uint64_t> begun_;
    std::size_t most_targets_ = kMaxTargets;  // of one transaction, by how long the last ones took
    // Events of which the server ended a delivery alone, and of which none was written since: they
    // begin with one.
    std::unordered_set<std::string> slow_;
    std::int64_t missed_total_ = 0;
};

}  // namespace outbox::webhook
