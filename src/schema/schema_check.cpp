#include "schema/schema_check.h"

#include "schema/shown.h"

namespace outbox::schema {
namespace {

// Of a payload that whoever publishes checks itself; others take the time of a thread.
constexpr std::size_t kMaxAtOnceBytes = std::size_t{64} << 10;

bool is_latest(std::string_view version) {
    return version.empty() || version == "latest";
}

// As the API has it: a number, or the newest.
bool is_version(std::string_view text) {
    constexpr std::size_t kMaxDigits = 10;
    return is_latest(text) || (text.size() <= kMaxDigits && text.front() != '0' &&
                               text.find_first_not_of("0123456789") == std::string_view::npos);
}

// Whoever has registered a version, then writes events by it, must not wait until the former one is
// forgotten.
bool may_have_changed(const Status& status, const spi::Record& record) {
    return !status.ok() && status.error().code == ErrorCode::kSchemaViolated &&
           is_latest(record.schema_version);
}

ErrorInfo dead(ErrorCode code, std::string message) {
    return {code, Advice::kDeadLetter, {}, std::move(message)};
}

std::string frame(std::uint32_t id, std::string_view value) {
    std::string out(1, '\0');
    for (const unsigned shift : {24U, 16U, 8U, 0U}) out += static_cast<char>(id >> shift & 0xFFU);
    return out.append(value);
}

}  // namespace

std::optional<Status> SchemaCheck::prepare_at_once(spi::Record& record, prepare::Prepared& out) {
    if (Status refused = why_not_asked(record); !refused.ok()) return refused;
    if (record.payload.size() > kMaxAtOnceBytes) return std::nullopt;
    const auto answer = registry_->find(record.schema_id, record.schema_version);
    if (!answer) return std::nullopt;
    Status status = apply(*answer, record, out, {});
    if (may_have_changed(status, record)) return std::nullopt;
    return status;
}

Status SchemaCheck::prepare(spi::Record& record, prepare::Prepared& out,
                            const std::stop_token& stop) {
    Status status =
        apply(registry_->ask(record.schema_id, record.schema_version, stop), record, out, stop);
    if (!may_have_changed(status, record)) return status;
    return apply(registry_->ask_for_latest_anew(record.schema_id, stop), record, out, stop);
}

Status SchemaCheck::why_not_asked(const spi::Record& record) const {
    if (record.schema_id.empty()) {
        return dead(ErrorCode::kInvalidEvent,
                    "event " + std::string(record.id) +
                        " has no schema_id, and schema_framing writes the id of its schema; write "
                        "the subject as schema_id");
    }
    if (is_version(record.schema_version)) return {};
    return dead(ErrorCode::kInvalidEvent,
                "the schema_version '" + shown(record.schema_version) + "' of event " +
                    std::string(record.id) +
                    " is none of a schema registry, where it is a number from 1, or latest");
}

Status SchemaCheck::apply(const Registry::Answer& answer, spi::Record& record,
                          prepare::Prepared& out, const std::stop_token& stop) const {
    if (const auto* failure = std::get_if<Registry::Failure>(&answer)) {
        out.part = failure->part;
        return failure->error;
    }
    const Registry::Schema& schema = *std::get<std::shared_ptr<const Registry::Schema>>(answer);
    if (schema.rules) {
        JsonSchema::Violation violation;
        const auto outcome =
            registry_->check_payload(*schema.rules, record.payload, stop, violation);
        if (outcome == JsonSchema::Outcome::kStopped) return registry_->stopped();
        if (outcome == JsonSchema::Outcome::kViolates) {
            return dead(ErrorCode::kSchemaViolated,
                        "the payload of event " + std::string(record.id) + " at " +
                            (violation.path.empty() ? "its root" : violation.path) + " " +
                            violation.rule + " (rule " + violation.place + " of schema '" +
                            shown(record.schema_id) + "', id " + std::to_string(schema.id) + ")");
        }
    }
    if (framed_) {
        out.bytes = frame(schema.id, record.value);
        record.value = out.bytes;
    }
    return {};
}

}  // namespace outbox::schema
