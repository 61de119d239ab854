#include <outbox/error.h>

namespace outbox {

std::string_view error_code_name(ErrorCode code) {
    switch (code) {
        case ErrorCode::kConfigInvalid:
            return "OB_CONFIG_INVALID";
        case ErrorCode::kConnectFailed:
            return "OB_CONNECT_FAILED";
        case ErrorCode::kAuthFailed:
            return "OB_AUTH_FAILED";
        case ErrorCode::kNoSuchDatabase:
            return "OB_NO_SUCH_DATABASE";
        case ErrorCode::kNoSuchTable:
            return "OB_NO_SUCH_TABLE";
        case ErrorCode::kTableShape:
            return "OB_TABLE_SHAPE";
        case ErrorCode::kNoRights:
            return "OB_NO_RIGHTS";
        case ErrorCode::kMigrationRefused:
            return "OB_MIGRATION_REFUSED";
        case ErrorCode::kQueryFailed:
            return "OB_QUERY_FAILED";
        case ErrorCode::kConnectionLost:
            return "OB_CONNECTION_LOST";
        case ErrorCode::kLeaseLost:
            return "OB_LEASE_LOST";
        case ErrorCode::kServerChanged:
            return "OB_SERVER_CHANGED";
        case ErrorCode::kWrongServer:
            return "OB_WRONG_SERVER";
        case ErrorCode::kDestinationChanged:
            return "OB_DESTINATION_CHANGED";
        case ErrorCode::kRouteGone:
            return "OB_ROUTE_GONE";
        case ErrorCode::kTableReset:
            return "OB_TABLE_RESET";
        case ErrorCode::kNoTransaction:
            return "OB_NO_TRANSACTION";
        case ErrorCode::kInvalidEvent:
            return "OB_INVALID_EVENT";
        case ErrorCode::kPayloadTooLarge:
            return "OB_PAYLOAD_TOO_LARGE";
        case ErrorCode::kTopicInvalid:
            return "OB_TOPIC_INVALID";
        case ErrorCode::kTopicUnknown:
            return "OB_TOPIC_UNKNOWN";
        case ErrorCode::kRecordRefused:
            return "OB_RECORD_REFUSED";
        case ErrorCode::kObjectGone:
            return "OB_OBJECT_GONE";
        case ErrorCode::kObjectAltered:
            return "OB_OBJECT_ALTERED";
        case ErrorCode::kSchemaUnknown:
            return "OB_SCHEMA_UNKNOWN";
        case ErrorCode::kSchemaViolated:
            return "OB_SCHEMA_VIOLATED";
        case ErrorCode::kSinkUnavailable:
            return "OB_SINK_UNAVAILABLE";
        case ErrorCode::kSinkRebuilt:
            return "OB_SINK_REBUILT";
        case ErrorCode::kSinkTimeout:
            return "OB_SINK_TIMEOUT";
        case ErrorCode::kSinkClosed:
            return "OB_SINK_CLOSED";
        case ErrorCode::kGuaranteeRefused:
            return "OB_GUARANTEE_REFUSED";
        case ErrorCode::kDiskFull:
            return "OB_DISK_FULL";
        case ErrorCode::kQuarantined:
            return "OB_QUARANTINED";
        case ErrorCode::kHandlerFailed:
            return "OB_HANDLER_FAILED";
        case ErrorCode::kConflict:
            return "OB_CONFLICT";
        case ErrorCode::kUnsupported:
            return "OB_UNSUPPORTED";
        case ErrorCode::kInternal:
            return "OB_INTERNAL";
    }
    return "OB_INTERNAL";
}

std::string_view advice_name(Advice advice) {
    switch (advice) {
        case Advice::kRetryDestination:
            return "retry_destination";
        case Advice::kRetryEvent:
            return "retry_event";
        case Advice::kDeadLetter:
            return "dead_letter";
        case Advice::kStop:
            return "stop";
    }
    return "stop";
}

std::string describe(const ErrorInfo& error) {
    std::string text(error_code_name(error.code));
    if (!error.backend_code.empty()) text += " (" + error.backend_code + ")";
    return text + ": " + error.message;
}

}  // namespace outbox
