#include "runtime/connector_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json_text.h"
#include "runtime/options.h"

namespace outbox::runtime {
namespace {

using nlohmann::json;

std::size_t line_at(std::string_view text, std::size_t at) {
    const std::string_view before = text.substr(0, at);
    return 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
}

// Where a name of the object stands; the parser says that of errors alone.
std::size_t line_of(std::string_view text, std::string_view name) {
    std::string quoted;
    append_json_string(name, quoted);
    return line_at(text, text.find(quoted));
}

}  // namespace

bool is_connector_json(std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    return first != std::string_view::npos && text[first] == '{';
}

Result<std::vector<Property>> read_connector_json(std::string_view text) {
    json object;
    try {
        object = json::parse(text);
    } catch (const json::parse_error& error) {
        // What it says beside the place quotes the file, in which there are passwords.
        return config_error("the file, line " + std::to_string(line_at(text, error.byte - 1)),
                            "begins like a connector's JSON and is none from here on");
    }
    if (const auto config = object.find("config"); config != object.end() && config->is_object()) {
        object = json(*config);
    }
    std::vector<Property> out;
    for (const auto& [name, value] : object.items()) {
        if (value.is_null()) continue;
        if (value.is_structured()) {
            return config_error("the file, line " + std::to_string(line_of(text, name)),
                                name + " is " + value.type_name() +
                                    "; a connector's options are texts, numbers or booleans");
        }
        out.push_back({name, value.is_string() ? value.get<std::string>() : value.dump(),
                       line_of(text, name)});
    }
    return out;
}

}  // namespace outbox::runtime
