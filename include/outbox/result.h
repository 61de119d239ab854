#pragma once

#include <cstdlib>
#include <optional>
#include <utility>
#include <variant>

#include <outbox/error.h>

namespace outbox {

/// Success, or an `ErrorInfo`. What relay and SPI functions return instead of throwing.
class [[nodiscard]] Status {
  public:
    Status() = default;
    Status(ErrorInfo error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
    Status(ErrorCode code, Advice advice, std::string message, std::string backend_code = {})
        : error_(ErrorInfo{code, advice, std::move(backend_code), std::move(message)}) {}

    [[nodiscard]] bool ok() const noexcept { return !error_.has_value(); }
    explicit operator bool() const noexcept { return ok(); }

    /// Aborts when ok: asking is a defect.
    [[nodiscard]] const ErrorInfo& error() const& {
        if (!error_) std::abort();
        return *error_;
    }
    [[nodiscard]] ErrorInfo&& error() && {
        if (!error_) std::abort();
        return *std::move(error_);
    }

    /// Throws `Error` when not ok: the bridge to the producer and consumer API.
    void or_throw() const {
        if (error_) throw Error(*error_);
    }

  private:
    std::optional<ErrorInfo> error_;
};

/// A value, or an `ErrorInfo`.
template <typename T>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
    Result(ErrorInfo error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
    Result(Status status)                                  // NOLINT(google-explicit-constructor)
        : state_(std::move(status).error()) {}

    [[nodiscard]] bool ok() const noexcept { return std::holds_alternative<T>(state_); }
    explicit operator bool() const noexcept { return ok(); }

    /// Precondition: `ok()`.
    [[nodiscard]] T& value() & { return std::get<T>(state_); }
    [[nodiscard]] const T& value() const& { return std::get<T>(state_); }
    [[nodiscard]] T&& value() && { return std::get<T>(std::move(state_)); }
    [[nodiscard]] T& operator*() & { return value(); }
    [[nodiscard]] const T& operator*() const& { return value(); }
    [[nodiscard]] T&& operator*() && { return std::move(*this).value(); }
    [[nodiscard]] T* operator->() { return &value(); }
    [[nodiscard]] const T* operator->() const { return &value(); }

    /// Precondition: `!ok()`.
    [[nodiscard]] const ErrorInfo& error() const { return std::get<ErrorInfo>(state_); }
    [[nodiscard]] Status status() const { return ok() ? Status() : Status(error()); }

    /// Throws `Error` when not ok, else gives the value.
    T value_or_throw() && {
        if (!ok()) throw Error(error());
        return std::get<T>(std::move(state_));
    }

  private:
    std::variant<T, ErrorInfo> state_;
};

}  // namespace outbox
