#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <outbox/event.h>
#include <outbox/fence.h>
#include <outbox/producer/emit.h>

namespace outbox {

/// The transaction that a `UnitOfWork` drives; the adapters make them.
class UnitOfWorkTransaction {
  public:
    UnitOfWorkTransaction() = default;
    UnitOfWorkTransaction(const UnitOfWorkTransaction&) = delete;
    UnitOfWorkTransaction& operator=(const UnitOfWorkTransaction&) = delete;
    virtual ~UnitOfWorkTransaction() = default;

    virtual void begin() = 0;
    /// With `EmitOptions::lock_key`: takes the locks of all their keys first.
    virtual void emit(std::span<const Event> events) = 0;
    virtual void commit() = 0;
    virtual void rollback() noexcept = 0;
};

/// One transaction over aggregates and their events. Aggregates are saved before their events are
/// written, so that writers of a key are serialised by the aggregate's row (lock or version check)
/// when the event gets its position; that is what the order per key rests on.
///
///     auto unit = outbox::begin_unit_of_work(connection);
///     unit.track(order, [&](Order& o) { save(connection, o); });   // o.take_events() gives events
///     unit.commit();                                              // else: rolled back
///
/// Thread safety: one thread. Not copyable. Owns neither the connection nor the aggregates; both
/// must outlive it.
class UnitOfWork {
  public:
    /// Begins the transaction. Use `begin_unit_of_work` of an adapter.
    explicit UnitOfWork(std::unique_ptr<UnitOfWorkTransaction> transaction);
    UnitOfWork(UnitOfWork&&) noexcept = default;
    UnitOfWork& operator=(UnitOfWork&&) = delete;
    UnitOfWork(const UnitOfWork&) = delete;
    UnitOfWork& operator=(const UnitOfWork&) = delete;
    /// Rolls back unless committed.
    ~UnitOfWork();

    /// Has `save(aggregate)` called once by the next `flush`, and then the events written that
    /// `aggregate.take_events()` gives (a `std::vector<Event>`; the aggregate forgets them). An
    /// aggregate that is tracked already is not tracked again.
    template <typename Aggregate, typename Save>
    void track(Aggregate& aggregate, Save save) {
        track_entry({&aggregate,
                     [&aggregate, save = std::move(save)]() mutable { save(aggregate); },
                     [&aggregate] { return aggregate.take_events(); }});
    }

    /// Queues an event; it is written by the next `flush`, after the aggregates. Returns its id.
    std::string emit(Event event);

    /// Saves the tracked aggregates in the order of `track`, then writes their events and the
    /// queued ones. May be called more than once. Throws what `save` throws, and as the adapter's
    /// `emit`; after an exception only `rollback` is possible.
    void flush();

    /// Flushes and commits. Throws as `flush`; `kConnectionLost` here means that the outcome is not
    /// known: look for the aggregate or the event before trying again.
    void commit();

    /// Flushes, then has `commit_transaction` end the transaction in place of COMMIT: for what is
    /// sent together with it. When it throws, the unit is rolled back as far as that is possible.
    void commit(const std::function<void()>& commit_transaction);

    /// Undoes everything, the aggregates in memory excepted. Does nothing after `commit`.
    void rollback() noexcept;

    /// The fence token (outbox/fence.h) of the events that were written so far; after `commit` of
    /// all. Hand it out after `commit` only: events that are rolled back never arrive. One that is
    /// delayed counts as well, and arrives when it is due. Throws as `fence_token`.
    [[nodiscard]] std::string fence() const;

  private:
    struct Tracked {
        const void* identity;
        std::function<void()> save;
        std::function<std::vector<Event>()> take_events;
    };
    void track_entry(Tracked entry);
    void save_and_emit();
    void require_open() const;

    std::unique_ptr<UnitOfWorkTransaction> transaction_;
    std::deque<Tracked> tracked_;  // A save may track more: entries must stay where they are.
    std::vector<Event> queued_;
    bool failed_ = false;
    std::vector<std::string> written_;  // ids; one more than a token holds is enough
};

}  // namespace outbox
