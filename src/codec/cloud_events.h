#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/encoder.h"
#include "codec/formats.h"
#include "codec/headers.h"
#include "codec/time_text.h"
#include "core/cloud_event.h"

namespace outbox::codec {

/// Where the attributes stand.
enum class ContentMode : std::uint8_t {
    kBinary,     ///< In headers; the value is the payload.
    kStructured  ///< In the value, a JSON object with the payload as `data` or `data_base64`.
};

/// What all encoders of a route have in common.
struct CloudEventsConfig {
    ContentMode mode = ContentMode::kBinary;
    spi::AttributeNames attributes;
    std::string source;           ///< A URI-reference.
    std::string type;             ///< Of events without; empty: they are refused.
    std::string datacontenttype;  ///< Empty: what the payload turns out to be.
    std::string dataschema_base;  ///< What `dataschema` begins with.
};

/// Errors: kConfigInvalid for an unknown option, or a value that no event could have.
Result<CloudEventsConfig> make_cloud_events_config(const FormatSettings& settings,
                                                   ContentMode mode);

/// A media type (RFC 2045) by its looks, of at most 255 bytes.
[[nodiscard]] bool is_media_type(std::string_view text);

/// Formats `cloudevents` and `cloudevents-structured`: CloudEvents 1.0 in the binary and the
/// structured content mode, by the binding of the destination's protocol (docs/formats.md).
/// A header of the event whose name may be that of an attribute becomes one; others stay headers.
class CloudEventsEncoder final : public Encoder {
  public:
    explicit CloudEventsEncoder(CloudEventsConfig config);

    /// Errors: kInvalidEvent/dead_letter for an event without type, a field that no attribute may
    /// hold, a payload that is not JSON where its media type says so, headers that are not a JSON
    /// object or would stand for an attribute that the event has already.
    Result<spi::Record> encode(const spi::EventView& event, std::string_view topic,
                               spi::EventBatch& arena) override;

  private:
    using Attribute = cloud_event::Attribute;
    static constexpr std::size_t kCount = cloud_event::kNames.size();

    [[nodiscard]] std::string_view& value(Attribute attribute) {
        return values_[static_cast<std::size_t>(attribute)];
    }
    Status take_fields(const spi::EventView& event, spi::EventBatch& arena);
    Status take_headers(const spi::EventView& event, spi::EventBatch& arena);
    Status take_content_type(const spi::EventView& event);
    [[nodiscard]] std::string_view schema_of(const spi::EventView& event, spi::EventBatch& arena);
    void write_binary(spi::Record& record, spi::EventBatch& arena);
    void write_structured(const spi::EventView& event, spi::Record& record, spi::EventBatch& arena);
    [[nodiscard]] std::string_view as_header(std::string_view text, spi::EventBatch& arena) {
        return config_.attributes.percent_encoded ? percent_encoded(text, arena) : text;
    }
    [[nodiscard]] std::string_view percent_encoded(std::string_view text, spi::EventBatch& arena);
    void append_data(const spi::EventView& event);

    const CloudEventsConfig config_;
    std::array<std::string, kCount> names_;  // of headers
    TimeText times_;
    std::string schema_;  // of the last `schema_id_` and `schema_version_`
    std::string schema_id_;
    std::string schema_version_;

    // Of the event that is being encoded.
    std::array<std::string_view, kCount> values_;  // null: it has not got this
    std::vector<spi::HeaderView> extensions_;      // attributes that were headers
    std::vector<spi::HeaderView> headers_;         // those that stay ones
    bool is_json_ = false;                         // the payload
    std::string scratch_;
};

}  // namespace outbox::codec
