#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace outbox {

/// What to do about an error. Every error that Outbox reports carries one.
enum class Advice : std::uint8_t {
    kRetryDestination,  ///< The destination is down: try again later; no event is at fault.
    kRetryEvent,        ///< This event failed: try it again; the attempt counts.
    kDeadLetter,        ///< This event will never succeed: give up on it.
    kStop,              ///< Going on would be unsafe or is pointless: stop and tell a person.
};

/// Stable names of everything that can go wrong; `error_code_name` gives the printed form.
enum class ErrorCode : std::uint16_t {
    kConfigInvalid,       ///< OB_CONFIG_INVALID: an option or the configuration file is wrong.
    kConnectFailed,       ///< OB_CONNECT_FAILED: the server cannot be reached.
    kAuthFailed,          ///< OB_AUTH_FAILED: the server refused the user or the password.
    kNoSuchDatabase,      ///< OB_NO_SUCH_DATABASE
    kNoSuchTable,         ///< OB_NO_SUCH_TABLE
    kTableShape,          ///< OB_TABLE_SHAPE: columns are missing or of an unusable type.
    kNoRights,            ///< OB_NO_RIGHTS: the message names the right and the GRANT.
    kMigrationRefused,    ///< OB_MIGRATION_REFUSED: newer database, changed migration, or locked.
    kQueryFailed,         ///< OB_QUERY_FAILED: the database refused a statement.
    kConnectionLost,      ///< OB_CONNECTION_LOST: the connection broke.
    kLeaseLost,           ///< OB_LEASE_LOST: another relay holds a newer epoch.
    kServerChanged,       ///< OB_SERVER_CHANGED: failed over or restored; reading begins anew.
    kWrongServer,         ///< OB_WRONG_SERVER: another database cluster answers at the address.
    kDestinationChanged,  ///< OB_DESTINATION_CHANGED: a route leads to another destination than
                          ///< before.
    kRouteGone,      ///< OB_ROUTE_GONE: a route with unfinished events is not configured any more.
    kTableReset,     ///< OB_TABLE_RESET: the table was replaced, or its positions begin anew.
    kNoTransaction,  ///< OB_NO_TRANSACTION: an event was written outside a transaction.
    kInvalidEvent,   ///< OB_INVALID_EVENT: a field of the event is not valid.
    kPayloadTooLarge,   ///< OB_PAYLOAD_TOO_LARGE
    kTopicInvalid,      ///< OB_TOPIC_INVALID: not a valid or not an allowed topic name.
    kTopicUnknown,      ///< OB_TOPIC_UNKNOWN: the broker has no such topic.
    kRecordRefused,     ///< OB_RECORD_REFUSED: the destination refused this record.
    kObjectGone,        ///< OB_OBJECT_GONE: a payload that was kept elsewhere is not there.
    kObjectAltered,     ///< OB_OBJECT_ALTERED: it is another than was written.
    kSchemaUnknown,     ///< OB_SCHEMA_UNKNOWN: the registry has no such schema, or none that can be
                        ///< used.
    kSchemaViolated,    ///< OB_SCHEMA_VIOLATED: the payload is not as its schema says.
    kSinkUnavailable,   ///< OB_SINK_UNAVAILABLE: the destination is down or out of reach.
    kSinkRebuilt,       ///< OB_SINK_REBUILT: the producer was rebuilt; its records go again.
    kSinkTimeout,       ///< OB_SINK_TIMEOUT: no answer in time; the outcome is unknown.
    kSinkClosed,        ///< OB_SINK_CLOSED: the destination is gone for good (closed pipe).
    kGuaranteeRefused,  ///< OB_GUARANTEE_REFUSED: asks for more than the sink can promise.
    kDiskFull,          ///< OB_DISK_FULL
    kQuarantined,       ///< OB_QUARANTINED: too old or too far ahead to be known as new.
    kHandlerFailed,     ///< OB_HANDLER_FAILED: the consumer's handler threw.
    kConflict,          ///< OB_CONFLICT: a version check failed or a key is in use.
    kUnsupported,       ///< OB_UNSUPPORTED: not possible with this backend or version.
    kInternal,          ///< OB_INTERNAL: a defect in Outbox.
};

/// The stable printed name of a code, for example "OB_CONNECT_FAILED".
[[nodiscard]] std::string_view error_code_name(ErrorCode code);

/// The stable printed name of an advice, for example "retry_destination".
[[nodiscard]] std::string_view advice_name(Advice advice);

/// The data of an error, the same in `Status`, `Result` and `Error`.
struct ErrorInfo {
    ErrorCode code = ErrorCode::kInternal;
    Advice advice = Advice::kStop;
    std::string backend_code;  ///< The backend's own code: an SQLSTATE, a librdkafka name.
    std::string message;       ///< What failed, where, and what to do about it.
};

/// "OB_CODE (backend code): message", on one line, as logs and commands print it.
[[nodiscard]] std::string describe(const ErrorInfo& error);

/// The one exception type of the producer and consumer API.
class Error : public std::runtime_error {
  public:
    explicit Error(ErrorInfo info) : std::runtime_error(describe(info)), info_(std::move(info)) {}
    Error(ErrorCode code, Advice advice, std::string message)
        : Error(ErrorInfo{code, advice, {}, std::move(message)}) {}

    [[nodiscard]] const ErrorInfo& info() const noexcept { return info_; }
    [[nodiscard]] ErrorCode code() const noexcept { return info_.code; }
    [[nodiscard]] Advice advice() const noexcept { return info_.advice; }

  private:
    ErrorInfo info_;
};

}  // namespace outbox
