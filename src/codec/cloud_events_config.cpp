#include "codec/cloud_events.h"
#include "core/url.h"

// The table [route.cloudevents].
namespace outbox::codec {
namespace {

namespace ce = cloud_event;

constexpr std::string_view kTable = "cloudevents.";
constexpr std::string_view kRegistry = "outbox:";

ErrorInfo wrong_option(std::string_view name, std::string_view value, std::string_view why) {
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            std::string(name) + " = \"" + std::string(value) + "\" under [route.cloudevents] " +
                std::string(why)};
}

Status take_option(std::string_view name, const std::string& value, CloudEventsConfig& config) {
    if (name == "source") {
        if (!ce::is_uri_reference(value)) {
            return wrong_option(name, value, "is not a URI-reference; write for example /shop");
        }
        config.source = value;
    } else if (name == "type") {
        if (value.empty() || !ce::is_attribute_text(value)) {
            return wrong_option(name, value, "is empty or has control characters");
        }
        config.type = value;
    } else if (name == "datacontenttype") {
        if (!is_media_type(value) || ce::is_event_type(value)) {
            return wrong_option(name, value,
                                "is no media type of data; write for example application/json");
        }
        config.datacontenttype = value;
    } else if (name == "dataschema_base") {
        if (!ce::is_absolute_uri(value)) {
            return wrong_option(name, value,
                                "is not an absolute URI; write for example "
                                "https://registry.example.com");
        }
        config.dataschema_base = value;
        while (config.dataschema_base.ends_with('/')) config.dataschema_base.pop_back();
    } else if (name == "schema_registry") {
        return {ErrorCode::kConfigInvalid, Advice::kStop,
                "there is no option 'schema_registry' under [route.cloudevents]: payloads are "
                "checked by the schema_registry of the route, above that table, and what "
                "dataschema begins with is dataschema_base"};
    } else {
        return {ErrorCode::kConfigInvalid, Advice::kStop,
                "there is no option '" + std::string(name) +
                    "' under [route.cloudevents]; there are source, type, datacontenttype and "
                    "dataschema_base"};
    }
    return {};
}

}  // namespace

bool is_media_type(std::string_view text) {
    constexpr std::size_t kMaxBytes = 255;  // AMQP's property
    const std::size_t slash = text.find('/');
    return text.size() <= kMaxBytes && slash != std::string_view::npos && slash > 0 &&
           slash + 1 < text.size() && ce::is_attribute_text(text);
}

Result<CloudEventsConfig> make_cloud_events_config(const FormatSettings& settings,
                                                   ContentMode mode) {
    CloudEventsConfig config{.mode = mode,
                             .attributes = settings.attributes,
                             .source = "/outbox/" + path_part(settings.table),
                             .type = {},
                             .datacontenttype = {},
                             .dataschema_base = std::string(kRegistry)};
    for (const auto& [option, value] : settings.options) {
        const std::string_view name = std::string_view(option).substr(kTable.size());
        if (Status status = take_option(name, value, config); !status.ok()) return status;
    }
    return config;
}

}  // namespace outbox::codec
