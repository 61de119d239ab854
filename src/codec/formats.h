#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <outbox/result.h>
#include <outbox/spi/row_shape.h>
#include <outbox/spi/sink.h>

#include "codec/encoder.h"

namespace outbox::codec {

/// What a format is made for.
struct FormatSettings {
    /// Of the table in the route that bears the format's name: "cloudevents.source" -> "/shop".
    std::map<std::string, std::string> options;
    std::string table;               ///< That events come from, with its schema where there is one.
    spi::AttributeNames attributes;  ///< The destination's.
    /// Of that table; null: it is not known yet, and the options alone are looked at.
    const spi::RowShape* shape = nullptr;
    bool claims = false;  ///< Large payloads are kept elsewhere.
    /// As in `Broker`.
    std::optional<std::string> (*why_not_header)(std::string_view name) = nullptr;
};

/// One value of the option `format`.
struct Format {
    std::string_view name;
    std::string_view help;  ///< Half a sentence for --help.
    /// Formats of one kind share the table [route.NAME] of their options; empty: there are none.
    std::string_view table = {};
    /// What may stand in that table, with an example in backticks; empty: another format of the
    /// kind says it.
    std::string_view options = {};
    std::string_view example_option = {};  ///< A line of that table.
    /// Errors: kConfigInvalid, naming the option.
    Result<MakeEncoder> (*make)(const FormatSettings& settings) = nullptr;
};

[[nodiscard]] std::span<const Format> formats();
/// Null when there is none.
[[nodiscard]] const Format* find_format(std::string_view name);

}  // namespace outbox::codec
