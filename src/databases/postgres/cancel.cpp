#include "databases/postgres/cancel.h"

#include <array>
#include <libpq-fe.h>
#include <system_error>
#include <thread>

#include "core/mutex.h"

namespace outbox::postgres {

struct Cancel::State {
    core::Mutex mutex;
    core::Condition changed;
    bool taken OUTBOX_GUARDED_BY(mutex) = false;
};

Cancel::Cancel(pg_conn* connection) : state_(std::make_shared<State>()) {
    const auto end = [state = state_,
                      cancel = std::shared_ptr<PGcancel>(PQgetCancel(connection), PQfreeCancel)] {
        std::array<char, 256> reason{};
        if (cancel) PQcancel(cancel.get(), reason.data(), static_cast<int>(reason.size()));
        const core::Lock lock(state->mutex);
        state->taken = true;
        state->changed.notify_all();
    };
    try {
        // Nobody may wait for it: where nothing answers it ends with the process.
        std::thread(end).detach();
    } catch (const std::system_error&) {
        const core::Lock lock(state_->mutex);
        state_->taken = true;
    }
}

bool Cancel::taken(std::chrono::milliseconds most) const {
    const core::Lock lock(state_->mutex);
    return state_->changed.wait_for(
        state_->mutex, most, [this]() OUTBOX_REQUIRES(state_->mutex) { return state_->taken; });
}

}  // namespace outbox::postgres
