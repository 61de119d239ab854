#include "databases/postgres/session.h"

#include <algorithm>

namespace outbox::postgres {

Result<Connection*> Session::get() {
    failed();
    if (connection_ && connection_->replaced()) drop();
    if (connection_) return &*connection_;
    Result<Connection> made = Connection::open(url_, timeout_s_);
    if (!made.ok()) {
        ErrorInfo error = made.error();
        // The source has connected before: a password that is being changed comes right again, and
        // a database that another is put in the place of.
        if (error.code == ErrorCode::kAuthFailed || error.code == ErrorCode::kNoSuchDatabase) {
            error.advice = Advice::kRetryDestination;
        }
        return error;
    }
    if (Status status = made->follow(path_); !status.ok()) return status;
    if (Status status = prepare_(*made); !status.ok()) return status;
    connection_.emplace(std::move(*made));
    return &*connection_;
}

std::size_t RowSize::limit(std::size_t max_rows, std::size_t max_bytes) const {
    const std::size_t rows = max_bytes / std::max<std::size_t>(average_, 1) + 1;
    return std::clamp<std::size_t>(rows, 1, std::max<std::size_t>(max_rows, 1));
}

void RowSize::note(std::size_t rows, std::size_t bytes) {
    if (rows == 0) return;
    const std::size_t now = bytes / rows;
    // Growth counts at once, shrinking bit by bit: too large a LIMIT costs rows that are dropped.
    average_ = now > average_ ? now : (average_ + now) / 2;
}

}  // namespace outbox::postgres
