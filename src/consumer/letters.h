#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "consumer/executor.h"
#include "consumer/inbox_store.h"
#include "core/retry_policy.h"

namespace outbox::consumer {

/// Dead letters that are tried once more when they are asked for, for one runner. Before a letter
/// is tried its request is taken from it and the try counted, committed: one that ends its process
/// is left a plain dead letter, and not tried at every start. Where the try does not count, the
/// request is put back, due later and later. One thread's.
class Letters {
  public:
    Letters(InboxStore& inbox, const core::RetryPolicy& retry) : inbox_(inbox), retry_(retry) {}

    /// kNew: it is ours to try.
    Result<Taken> take(std::string_view id) { return inbox_.take_request(id); }

    /// What the try means for the letter, which is told to it: it waits, or stays dead. kWaits is
    /// also said of an outage.
    Means settle(std::string_view id, const Attempt& attempt, std::uint64_t random);

    /// Puts back what could not be put back while the database was down, or another session had
    /// it.
    Status put_back_rest();

  private:
    struct Waiting {
        std::uint32_t tries = 0;  // for the length of the wait
        std::uint32_t lost = 0;   // sessions that ended under it
        std::int64_t delay_us = 0;
        bool is_owed = false;  // its request is to be put back
    };
    bool is_nobodys_fault(std::string_view id, const Attempt& attempt);
    Status put_back(const std::string& id, Waiting& waiting);

    InboxStore& inbox_;
    const core::RetryPolicy retry_;
    std::unordered_map<std::string, Waiting> waiting_;
};

}  // namespace outbox::consumer
