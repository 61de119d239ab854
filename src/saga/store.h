#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "saga/instance.h"

namespace outbox::saga {

/// What is saved with an instance.
struct Saving {
    std::string_view topic;                   ///< Where its answers go.
    std::optional<std::int64_t> due_us = {};  ///< When its timer is due.
    bool progress = true;                     ///< It went on; false: something was noted.
    bool request = false;                     ///< It has answered a request.
};

/// A step of a saga that somebody leads; two leaders may use one id.
struct StepKey {
    std::string_view leader;
    std::string_view saga_id;
    std::string_view step;
};

enum class StepEntry : std::uint8_t { kNew, kThere };

/// The caller's open transaction, the seam between the coordinator and the databases. Throws
/// `Error` as `accept` and `emit` do. Used by one thread.
class Store {
  public:
    Store() = default;
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;
    virtual ~Store() = default;

    /// Throws unless a sound transaction is open.
    virtual void require_transaction(const std::string& who) = 0;

    /// False: the id is in use.
    virtual bool insert(const Instance& instance, const Saving& saving) = 0;
    /// Locks the row until the transaction ends; waits for another that has it. None: no such saga.
    virtual std::optional<Instance> load(std::string_view id) = 0;
    virtual void save(const Instance& instance, const Saving& saving) = 0;

    /// Enters the step of a participant in outbox_saga_steps unless it is there, and waits for
    /// another transaction that has just entered it.
    virtual StepEntry enter_step(const StepKey& key, std::string_view state) = 0;
    /// True: the step was in state `from` and is in state `to` now.
    virtual bool change_step(const StepKey& key, std::string_view from, std::string_view to) = 0;

    virtual std::string emit(const Event& event, const EmitOptions& options) = 0;
};

}  // namespace outbox::saga
