#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/consumer/message_format.h>

namespace outbox::consumer {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

/// A message of another format as `raw` would have it.
struct Translated {
    std::string id;
    std::string headers;    ///< A JSON object of strings.
    bool in_value = false;  ///< The payload is not the value: it is the one below.
    std::optional<std::string> payload;
};

/// What a message is read as.
struct MessageReading {
    std::optional<Translated> event;  ///< None: the message is as it is.
    /// Why it is no CloudEvent where the format is to be that, or where it says that it is one;
    /// with the remedy.
    std::string fault;
};

/// `known_id`: what the broker knows the message by; or empty. Format kAuto then has no fault: what
/// is no CloudEvent with that id is as it is. Of headers of one name the last counts.
[[nodiscard]] MessageReading read_message(MessageFormat format, std::string_view known_id,
                                          const HeaderList& headers, std::string_view payload);

/// The same for headers that are a JSON object of strings. Costs next to nothing where they have
/// nothing of other formats.
[[nodiscard]] MessageReading read_message(MessageFormat format, std::string_view known_id,
                                          std::string_view headers, std::string_view payload);

}  // namespace outbox::consumer
