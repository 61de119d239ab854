#pragma once

#include <memory>
#include <string>

#include "prepare/preparation.h"
#include "schema/registry.h"

namespace outbox::schema {

/// Checks the payloads of records by the schemas that they name, and writes Confluent's frame
/// before their values where it is asked to: a zero byte, and the schema's id in four, the highest
/// first. A record without a payload is passed over, and without a frame one without a schema, too.
class SchemaCheck final : public prepare::Preparation {
  public:
    SchemaCheck(std::shared_ptr<Registry> registry, bool framed)
        : registry_(std::move(registry)), framed_(framed) {}

    [[nodiscard]] const std::string& needs() const override { return registry_->name(); }
    [[nodiscard]] bool concerns(const spi::Record& record) const override {
        return record.payload.data() != nullptr && (framed_ || !record.schema_id.empty());
    }
    std::optional<Status> prepare_at_once(spi::Record& record, prepare::Prepared& out) override;
    /// The registry has never had its schema, as far as is remembered.
    [[nodiscard]] bool is_doubtful(const spi::Record& record) override {
        return !registry_->has_had(record.schema_id, record.schema_version);
    }
    /// Errors: kSchemaViolated/dead_letter, kInvalidEvent/dead_letter (no schema, or a version that
    /// no registry has), and the registry's.
    Status prepare(spi::Record& record, prepare::Prepared& out,
                   const std::stop_token& stop) override;

  private:
    [[nodiscard]] Status why_not_asked(const spi::Record& record) const;
    Status apply(const Registry::Answer& answer, spi::Record& record, prepare::Prepared& out,
                 const std::stop_token& stop) const;

    const std::shared_ptr<Registry> registry_;
    const bool framed_;
};

}  // namespace outbox::schema
