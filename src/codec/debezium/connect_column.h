#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/result.h>
#include <outbox/spi/row_shape.h>

#include "codec/debezium/options.h"

namespace outbox::codec::debezium {

/// A value of a column as the relay reads it; null data: NULL.
struct ColumnValue {
    std::string_view text;
    bool raw = false;   ///< The bytes of a bytea as they are.
    bool cast = false;  ///< By a cast to text, which for some types is not what the type prints.
};

/// A column as Kafka Connect sees it behind Debezium's PostgreSQL connector: schema and values.
class ConnectColumn {
  public:
    /// Errors: kConfigInvalid for a type that this format does not know.
    static Result<ConnectColumn> make(const spi::ColumnShape& column, const Options& options);

    [[nodiscard]] const std::string& name() const { return name_; }
    /// Its values are texts for Connect, whatever the schema is called.
    [[nodiscard]] bool is_string() const { return type_ == "string"; }
    [[nodiscard]] bool is_bytes() const { return type_ == "bytes"; }
    [[nodiscard]] bool is_int32() const { return type_ == "int32"; }
    [[nodiscard]] bool is_timestamp() const;
    [[nodiscard]] bool is_nullable() const { return optional_; }

    /// The value that stands for NULL; none: null.
    [[nodiscard]] const std::optional<std::string>& default_text() const { return default_; }

    /// Appends the schema as JsonConverter writes it; `field`: as that field of a struct, if not
    /// null.
    void append_schema(std::string_view field, std::string& out) const;

    /// Appends the value as JsonConverter writes it. False: PostgreSQL has a value there that
    /// Debezium has none for (an infinite date, NaN where there are decimals).
    [[nodiscard]] bool append_json(const ColumnValue& value, bool decimal_as_text,
                                   std::string& out) const;

    /// StringConverter writes the value as it is read.
    [[nodiscard]] bool prints_itself() const;

    /// Appends the value as StringConverter writes it, which must not be NULL; dates and times of
    /// Java as where the zone is UTC. False as above.
    [[nodiscard]] bool append_java(const ColumnValue& value, std::string& out) const;

    /// The same as SimpleHeaderConverter writes it.
    [[nodiscard]] bool append_header(const ColumnValue& value, std::string& out) const;

    /// The value's bytes, where `is_bytes`.
    [[nodiscard]] bool append_bytes(const ColumnValue& value, std::string& out) const;

  private:
    enum class Meaning : std::uint8_t {
        kBoolean,
        kWhole,
        kFloat,
        kDouble,
        kText,
        kBytes,
        kBytesAsText,
        kDecimal,
        kVariableDecimal,
        kDecimalAsDouble,
        kDecimalAsText,
        kDate,
        kTimeMs,
        kTimeUs,
        kTimestampMs,
        kTimestampUs,
        kZonedTimestamp,
    };

    [[nodiscard]] bool settle(const spi::ColumnShape& column, const Options& options);
    void settle_decimal(const spi::ColumnShape& column, DecimalMode mode);
    void settle_time(const spi::ColumnShape& column, TimeMode mode);
    void be(Meaning meaning, std::string_view type, std::string_view name = {}, int version = 1);
    void settle_default(const spi::ColumnShape& column);
    [[nodiscard]] std::string_view plain(const ColumnValue& value, std::string& buffer) const;
    [[nodiscard]] bool append_text(const ColumnValue& value, std::string& out) const;
    [[nodiscard]] std::optional<std::int64_t> count_of(std::string_view text) const;
    [[nodiscard]] std::optional<std::int64_t> java_ms(std::string_view text) const;

    std::string name_;
    std::string column_type_;
    std::string type_;    // of Connect
    std::string inner_;   // of the schema, between type and optional
    std::string schema_;  // name, version, parameters, default: behind optional
    Meaning meaning_ = Meaning::kText;
    BinaryMode binaries_ = BinaryMode::kBytes;
    bool optional_ = true;
    bool java_time_ = false;  // it is a java.util.Date for Connect
    int length_ = -1;
    int scale_ = 0;
    std::optional<std::string> default_;
};

}  // namespace outbox::codec::debezium
