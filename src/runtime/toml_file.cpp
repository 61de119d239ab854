#include "runtime/toml_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <toml++/toml.h>

#include "backend/backends.h"
#include "codec/formats.h"
#include "core/suggest.h"

namespace outbox::runtime {
namespace {

constexpr std::size_t kMaxFileBytes = 1U << 20;

constexpr std::array kRouteKeys{
    RouteKeySpec{"name", "", false, "name in logs, metrics and tables; keep it once it is in use"},
    RouteKeySpec{"to", "to", false, "URL of the destination"},
    RouteKeySpec{"aggregate_type", "", true, "takes events of these aggregate types"},
    RouteKeySpec{"event_type", "", true, "takes events of these types"},
    RouteKeySpec{"topic", "", true, "takes events that name one of these topics"},
    RouteKeySpec{"tenant", "", true, "takes events of these tenants"},
    RouteKeySpec{"topic_template", "topic-template", false, ""},
    RouteKeySpec{"allowed_topics", "allowed-topic", true, ""},
    RouteKeySpec{"format", "format", false, ""},
    RouteKeySpec{"claim_check", "claim-check", false, ""},
    RouteKeySpec{"claim_check_above", "claim-check-above", false, ""},
    RouteKeySpec{"schema_registry", "schema-registry", false, ""},
    RouteKeySpec{"schema_framing", "schema-framing", false, ""},
    RouteKeySpec{"on_dead_letter", "on-dead-letter", false, ""},
};

constexpr std::array kColumnKeys{
    ColumnKeySpec{"position", "identity column that gives events their order"},
    ColumnKeySpec{"id", "event id"},
    ColumnKeySpec{"aggregate_type", "aggregate type"},
    ColumnKeySpec{"aggregate_id", "aggregate id"},
    ColumnKeySpec{"event_type", "event type"},
    ColumnKeySpec{"payload", "payload"},
    ColumnKeySpec{"headers", "headers, a JSON object"},
    ColumnKeySpec{"tenant_id", "tenant"},
    ColumnKeySpec{"schema_id", "schema id"},
    ColumnKeySpec{"schema_version", "schema version"},
    ColumnKeySpec{"occurred_at", "time of the event"},
    ColumnKeySpec{"topic", "topic"},
    ColumnKeySpec{"key", "key that order is kept by"},
    ColumnKeySpec{"routing_key", "routing key"},
    ColumnKeySpec{"status", "state of the row, one of the values of [source.table.status]"},
    ColumnKeySpec{"retry_count", "written: failed attempts"},
    ColumnKeySpec{"retry_after", "written: time of the next attempt"},
    ColumnKeySpec{"error_message", "written: last error, cut to fit"},
    ColumnKeySpec{"published_at", "written: time of publication"},
    ColumnKeySpec{"processed_at", "null while unsent; written: time of publication"},
    ColumnKeySpec{"processed", "boolean, false while unsent"},
};

/// What teams call a column, and what we do.
struct OtherName {
    std::string_view theirs;
    std::string_view ours;
};

constexpr std::array kOtherNames{
    OtherName{"sent_at", "processed_at"},
    OtherName{"delivered_at", "processed_at"},
    OtherName{"dispatched_at", "processed_at"},
    OtherName{"sent", "processed"},
    OtherName{"published", "processed"},
    OtherName{"is_processed", "processed"},
    OtherName{"created_at", "occurred_at"},
    OtherName{"timestamp", "occurred_at"},
    OtherName{"type", "event_type"},
    OtherName{"body", "payload"},
    OtherName{"data", "payload"},
    OtherName{"attempts", "retry_count"},
    OtherName{"last_error", "error_message"},
    OtherName{"tenant", "tenant_id"},
};

// The field that `key` is meant to map; empty: none is known.
std::string_view column_key(std::string_view key, std::string_view inside) {
    for (const OtherName& name : kOtherNames) {
        if (name.theirs == key && inside != "source.table.status") return name.ours;
    }
    // Right, but in another place.
    const bool known = std::any_of(kColumnKeys.begin(), kColumnKeys.end(),
                                   [&](const ColumnKeySpec& spec) { return spec.name == key; });
    return known && inside == "source.table" ? key : std::string_view();
}

// The tables that a route may have.
std::vector<std::string_view> tables_of_brokers() {
    std::vector<std::string_view> out;
    for (const Broker* broker : brokers()) {
        if (broker->has_options()) out.push_back(broker->name);
    }
    return out;
}

std::vector<std::string_view> tables_of_formats() {
    std::vector<std::string_view> out;
    for (const codec::Format& format : codec::formats()) {
        if (!format.options.empty()) out.push_back(format.table);
    }
    return out;
}

bool is_format_table(std::string_view name) {
    const std::vector<std::string_view> known = tables_of_formats();
    return std::ranges::find(known, name) != known.end();
}

// Walks the document and stops at the first error.
class Reader {
  public:
    explicit Reader(std::string path) : path_(std::move(path)) { content_.path = path_; }

    Result<FileContent> read(const toml::table& root) {
        read_table(root, "");
        if (error_) return *error_;
        return std::move(content_);
    }

    [[nodiscard]] std::string place(const toml::source_region& region) const {
        return path_ + ":" + std::to_string(region.begin.line) + ":" +
               std::to_string(region.begin.column);
    }

  private:
    void fail(const std::string& where, const std::string& what) {
        if (!error_) error_ = config_error(where, what);
    }

    void unknown(const std::string& where, std::string_view key,
                 const std::vector<std::string_view>& known, const std::string& inside) {
        if (inside.starts_with("source.table")) {
            if (const std::string_view column = column_key(key, inside); !column.empty()) {
                return fail(where, "unknown key '" + std::string(key) + "' in [" + inside +
                                       "]; write " + std::string(column) +
                                       " = \"COLUMN\" under [source.table.columns]");
            }
        }
        fail(where, "unknown key '" + std::string(key) + "'" +
                        (inside.empty() ? "" : " in [" + inside + "]") + did_you_mean(key, known));
    }

    // The values of a string, number, boolean, or of a list of them.
    std::vector<std::string> texts_of(const toml::node& node, std::string_view key,
                                      bool number_wanted, bool list_allowed) {
        std::vector<std::string> texts;
        const auto add = [&](const toml::node& item) {
            if (const auto* text = item.as_string()) {
                if (number_wanted) {
                    fail(place(item.source()),
                         std::string(key) + " must be a number, written without quotes");
                }
                texts.push_back(with_variables(text->get(), place(item.source()), key));
            } else if (const auto* number = item.as_integer()) {
                texts.push_back(std::to_string(number->get()));
            } else if (const auto* flag = item.as_boolean()) {
                texts.emplace_back(flag->get() ? "true" : "false");
            } else {
                // A destination's options are typed by the destination.
                const char* wanted = number_wanted ? "whole number"
                                     : item.is_floating_point()
                                         ? "whole number, or a text in quotes"
                                         : "text";
                fail(place(item.source()), std::string(key) + " must be a " + wanted);
            }
        };
        if (const auto* list = node.as_array()) {
            if (!list_allowed) {
                fail(place(node.source()), std::string(key) + " takes one value, not a list");
            }
            for (const auto& item : *list) add(item);
        } else {
            add(node);
        }
        return texts;
    }

    // "${NAME}" stands for a variable of the environment, "$$" for a dollar.
    std::string with_variables(std::string_view text, const std::string& where,
                               std::string_view key) {
        std::string out;
        while (true) {
            const auto dollar = text.find('$');
            out += text.substr(0, dollar);
            if (dollar == std::string_view::npos) return out;
            text.remove_prefix(dollar + 1);
            const auto close = text.find('}');
            if (text.starts_with('$')) {
                out += '$';
                text.remove_prefix(1);
            } else if (text.starts_with('{') && close != std::string_view::npos) {
                const std::string name(text.substr(1, close - 1));
                const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
                if (value == nullptr) {
                    fail(where,
                         std::string(key) + ": the environment has no variable '" + name + "'");
                    return out;
                }
                out += value;
                text.remove_prefix(close + 1);
            } else {
                fail(where, std::string(key) +
                                ": write ${NAME} for a variable of the environment, and $$ for a "
                                "dollar");
                return out;
            }
        }
    }

    std::string text_of(const toml::node& node, std::string_view key) {
        auto texts = texts_of(node, key, false, false);
        return texts.empty() ? std::string() : std::move(texts.front());
    }

    void read_option(const std::string& file_key, const toml::node& node) {
        for (const OptionSpec& spec : option_table()) {
            if (spec.file_key != file_key || error_) continue;
            OptionValue value;
            value.origin = Origin::kFile;
            value.where = place(node.source()) + ": " + file_key;
            value.texts =
                texts_of(node, file_key, spec.type == OptionType::kInteger, spec.repeatable);
            if (error_) return;
            if (value.texts.empty()) return fail(value.where, "must not be an empty list");
            OptionValues scratch;
            Status status = scratch.set(spec, value);
            if (!status.ok()) {
                error_ = std::move(status).error();
                return;
            }
            content_.options.emplace_back(&spec, std::move(value));
        }
    }

    static bool is_option_key(const std::string& file_key) {
        for (const OptionSpec& spec : option_table()) {
            if (spec.file_key == file_key) return true;
        }
        return false;
    }

    // Keys that may stand in the table whose dotted prefix is given ("" or "source.").
    static std::vector<std::string_view> known_keys(const std::string& prefix) {
        std::vector<std::string_view> keys;
        for (const OptionSpec& spec : option_table()) {
            if (!spec.file_key.starts_with(prefix)) continue;
            const auto rest = spec.file_key.substr(prefix.size());
            keys.push_back(rest.substr(0, rest.find('.')));
        }
        if (prefix.empty()) keys.emplace_back("route");
        if (prefix == "source.table.") {
            keys.insert(keys.end(), {"columns", "status", "metadata_columns", "metadata_as"});
        }
        return keys;
    }

    void read_table(const toml::table& table, const std::string& prefix) {
        for (const auto& [toml_key, node] : table) {
            if (error_) return;
            const std::string key(toml_key.str());
            const std::string full = prefix + key;
            const std::string where = place(toml_key.source());
            if (is_option_key(full)) {
                read_option(full, node);
            } else if (full == "route") {
                read_routes(node);
            } else if (prefix.empty() && node.is_table() && is_format_table(key)) {
                flatten(*node.as_table(), key + ".", content_.format_options);
            } else if (full == "source.table.metadata_columns") {
                content_.mapping.metadata_columns = texts_of(node, full, false, true);
            } else if (full == "source.table.metadata_as") {
                read_metadata_as(node, full);
            } else if (full == "source" || full.starts_with("source.table")) {
                read_sub_table(node, full, where, prefix);
            } else {
                unknown(where, key, known_keys(prefix), inside(prefix));
            }
        }
    }

    void read_metadata_as(const toml::node& node, const std::string& full) {
        const std::string kind = text_of(node, full);
        if (error_) return;
        if (kind != "json" && kind != "text") {
            return fail(place(node.source()), full + " must be json or text, not '" + kind + "'");
        }
        content_.mapping.metadata_as_text = kind == "text";
    }

    static std::string inside(const std::string& prefix) {
        return prefix.empty() ? prefix : prefix.substr(0, prefix.size() - 1);
    }

    void read_sub_table(const toml::node& node, const std::string& full, const std::string& where,
                        const std::string& prefix) {
        const bool known = full == "source" || full == "source.table" ||
                           full == "source.table.columns" || full == "source.table.status";
        if (!known) {
            const auto key = std::string_view(full).substr(prefix.size());
            return unknown(where, key, known_keys(prefix), inside(prefix));
        }
        const auto* table = node.as_table();
        if (table == nullptr) return fail(where, "write it as a table: [" + full + "]");
        if (full == "source.table.columns") return read_columns(*table);
        if (full == "source.table.status") return read_status(*table);
        read_table(*table, full + ".");
    }

    void read_columns(const toml::table& table) {
        for (const auto& [toml_key, node] : table) {
            const std::string key(toml_key.str());
            std::vector<std::string_view> known(kColumnKeys.size());
            std::transform(kColumnKeys.begin(), kColumnKeys.end(), known.begin(),
                           [](const ColumnKeySpec& spec) { return spec.name; });
            if (std::find(known.begin(), known.end(), key) == known.end()) {
                return unknown(place(toml_key.source()), key, known, "source.table.columns");
            }
            const std::string column = text_of(node, key);
            if (column.empty()) {
                return fail(place(node.source()), key + " must name a column");
            }
            content_.mapping.columns[key] = column;
        }
    }

    void read_status(const toml::table& table) {
        TableMapping& mapping = content_.mapping;
        for (const auto& [toml_key, node] : table) {
            const std::string key(toml_key.str());
            if (key == "pending") {
                mapping.pending_values = texts_of(node, key, false, true);
            } else if (key == "sending") {
                mapping.sending_values = texts_of(node, key, false, true);
            } else if (key == "sent") {
                mapping.sent_value = text_of(node, key);
            } else if (key == "failed") {
                mapping.failed_value = text_of(node, key);
            } else if (key == "dead") {
                mapping.dead_value = text_of(node, key);
            } else {
                return unknown(place(toml_key.source()), key,
                               {"pending", "sending", "sent", "failed", "dead"},
                               "source.table.status");
            }
        }
    }

    void read_routes(const toml::node& node) {
        const auto* list = node.as_array();
        if (list == nullptr) {
            return fail(place(node.source()), "write each route as [[route]], with two brackets");
        }
        for (const auto& item : *list) {
            const auto* table = item.as_table();
            if (table == nullptr) return fail(place(item.source()), "a route must be a table");
            read_route(*table);
            if (error_) return;
        }
    }

    void read_route(const toml::table& table) {
        RouteEntry entry;
        entry.where = place(table.source());
        for (const auto& [toml_key, node] : table) {
            if (error_) return;
            const std::string key(toml_key.str());
            const RouteKeySpec* spec = nullptr;
            std::vector<std::string_view> known = tables_of_brokers();
            const bool is_broker = std::ranges::find(known, key) != known.end();
            const std::vector<std::string_view> of_formats = tables_of_formats();
            const bool is_format = is_format_table(key);
            known.insert(known.end(), of_formats.begin(), of_formats.end());
            for (const RouteKeySpec& candidate : kRouteKeys) {
                known.push_back(candidate.name);
                if (candidate.name == key) spec = &candidate;
            }
            if (spec != nullptr) {
                read_route_value(entry, *spec, node);
            } else if (is_broker && node.is_table()) {
                flatten(*node.as_table(), key + ".", entry.sink_options);
            } else if (is_format && node.is_table()) {
                flatten(*node.as_table(), key + ".", entry.format_options);
            } else {
                return unknown(place(toml_key.source()), key, known, "[route]");
            }
        }
        for (const std::string_view needed : {"name", "to"}) {
            if (entry.values.find(needed) == entry.values.end()) {
                return fail(entry.where, "this route has no '" + std::string(needed) + "'");
            }
        }
        content_.routes.push_back(std::move(entry));
    }

    void read_route_value(RouteEntry& entry, const RouteKeySpec& spec, const toml::node& node) {
        const bool number =
            !spec.option.empty() && find_option(spec.option)->type == OptionType::kInteger;
        auto texts = texts_of(node, spec.name, number, spec.list);
        if (error_) return;
        const std::string where = place(node.source()) + ": " + std::string(spec.name);
        if (texts.empty()) return fail(where, "must not be an empty list");
        for (const std::string& text : texts) {
            if (text.empty()) return fail(where, "must not be empty");
        }
        if (!spec.option.empty()) {
            OptionValues scratch;
            Status status = scratch.set(*find_option(spec.option), {texts, Origin::kFile, where});
            if (!status.ok()) {
                error_ = std::move(status).error();
                return;
            }
        }
        entry.values[std::string(spec.name)] = std::move(texts);
    }

    // [route.kafka] linger.ms = 5 and "linger.ms" = 5 are the same.
    void flatten(const toml::table& table, const std::string& prefix,
                 std::map<std::string, std::string>& out) {
        for (const auto& [toml_key, node] : table) {
            const std::string name = prefix + std::string(toml_key.str());
            if (const auto* inner = node.as_table()) {
                flatten(*inner, name + ".", out);
            } else {
                out[name] = text_of(node, name);
            }
        }
    }

    std::string path_;
    FileContent content_;
    std::optional<ErrorInfo> error_;
};

Result<std::string> read_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        return config_error(path, std::string("cannot be read: ") + std::strerror(errno));
    }
    std::string text(kMaxFileBytes + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (file.bad()) return config_error(path, "cannot be read");
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMaxFileBytes) return config_error(path, "is larger than 1 MiB");
    return text;
}

}  // namespace

std::span<const RouteKeySpec> route_key_table() {
    return kRouteKeys;
}

std::span<const ColumnKeySpec> column_key_table() {
    return kColumnKeys;
}

Result<FileContent> read_toml_file(const std::string& path) {
    auto text = read_text(path);
    if (!text.ok()) return text.error();
    return read_toml(*text, path);
}

Result<FileContent> read_toml(std::string_view text, const std::string& path) {
    Reader reader(path);
    try {
        return reader.read(toml::parse(text, path));
    } catch (const toml::parse_error& error) {
        return config_error(reader.place(error.source()), std::string(error.description()));
    }
}

}  // namespace outbox::runtime
