#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/row_shape.h>

#include "codec/debezium/connect_column.h"
#include "codec/debezium/expanded_payload.h"
#include "codec/debezium/options.h"
#include "codec/debezium/row_reader.h"
#include "codec/debezium/topic_router.h"
#include "codec/encoder.h"

namespace outbox::codec::debezium {

/// Format `debezium`: the record that Debezium's outbox event router writes of the row, byte for
/// byte. docs/debezium.md says what stays different.
class DebeziumEncoder final : public Encoder {
  public:
    /// Errors: kConfigInvalid, naming the option or the column.
    static Result<std::unique_ptr<DebeziumEncoder>> make(const Options& options,
                                                         const spi::RowShape& shape);

    /// Errors: kInvalidEvent/dead_letter for what ends Debezium's engine: a value without a
    /// topic, a payload that its inferred schema does not hold.
    Result<spi::Record> encode(const spi::EventView& event, std::string_view topic,
                               spi::EventBatch& arena) override;
    [[nodiscard]] bool makes_topics() const override { return true; }

  private:
    struct Header {
        std::string name;
        const ConnectColumn* column = nullptr;
        std::string before;  ///< Of the value: the schema.
    };
    struct Extra {
        const ConnectColumn* column = nullptr;
        std::string name;  ///< As a JSON string.
        std::string java_name;
        std::string schema;
    };
    struct Payload;

    DebeziumEncoder(Options options, RowReader rows, TopicRouter topics,
                    const spi::RowShape& shape);
    Status settle();
    Status settle_headers();
    [[nodiscard]] std::string before_value(const ConnectColumn& column,
                                           const ConverterOptions& format) const;
    Status take_headers(const spi::EventView& event, spi::EventBatch& arena);
    Status add_text(const spi::EventView& event, const Header& header, spi::EventBatch& arena);
    Result<std::string_view> make_key(const spi::EventView& event, spi::EventBatch& arena);
    Result<std::string_view> make_value(const spi::EventView& event, std::string_view route,
                                        spi::EventBatch& arena);
    Result<std::string_view> plain_value(const spi::EventView& event, const Payload& payload,
                                         spi::EventBatch& arena);
    Result<std::string_view> envelope(const spi::EventView& event, const Payload& payload,
                                      std::string_view route, spi::EventBatch& arena);
    Status append_payload_json(const spi::EventView& event, const Payload& payload);
    Status append_payload_java(const spi::EventView& event, const Payload& payload);
    /// `behind`: another field stands before them.
    Status append_extras(const spi::EventView& event, bool json, bool behind);
    void append_envelope_schema(const std::string& payload_schema, std::string_view version,
                                std::string_view route);
    [[nodiscard]] ErrorInfo no_value(const spi::EventView& event,
                                     const ConnectColumn& column) const;
    Status take_partition(const spi::EventView& event, spi::Record& record);

    Options options_;
    RowReader rows_;
    TopicRouter topics_;
    std::string envelope_name_;  // up to the value that routes
    const ConnectColumn* key_ = nullptr;
    const ConnectColumn* payload_ = nullptr;
    const ConnectColumn* route_by_ = nullptr;
    const ConnectColumn* version_ = nullptr;
    const ConnectColumn* timestamp_ = nullptr;
    const ConnectColumn* partition_ = nullptr;
    std::vector<Header> id_and_headers_;
    std::vector<Extra> extras_;
    bool envelope_ = false;
    // Else an event has one only where an operator wrote it into a dead letter.
    bool topics_of_rows_ = false;
    bool keys_of_rows_ = false;
    std::string before_key_;
    std::string before_payload_;
    std::string payload_schema_;
    std::unordered_map<std::string, std::string> names_;  // of envelopes, by the payload's schema
    std::vector<spi::HeaderView> headers_;
    std::string out_;
};

}  // namespace outbox::codec::debezium
