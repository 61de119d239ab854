#include "runtime/debezium_import.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "codec/debezium/java_text.h"
#include "codec/debezium/options.h"
#include "codec/debezium/topic_router.h"
#include "core/ascii.h"
#include "core/json_text.h"
#include "core/url.h"
#include "core/utf8.h"
#include "runtime/connector_file.h"
#include "runtime/options.h"
#include "runtime/properties_file.h"

namespace outbox::runtime {
namespace {

namespace dbz = codec::debezium;

constexpr std::string_view kRouter = "io.debezium.transforms.outbox.EventRouter";

// A converter of Kafka Connect, as the format calls it; empty: it cannot be one.
struct ConverterName {
    std::string_view java;
    std::string_view of_key_and_value;
    std::string_view of_header;
};
constexpr std::array kConverters{
    ConverterName{"org.apache.kafka.connect.storage.StringConverter", "simplestring", "string"},
    ConverterName{"org.apache.kafka.connect.json.JsonConverter", "json", "json"},
    ConverterName{"org.apache.kafka.connect.storage.SimpleHeaderConverter", {}, "simplestring"},
    // All three write a bytea's bytes as they are, and end at a text, as the header id is one.
    ConverterName{"io.debezium.converters.BinaryDataConverter", "binary", {}},
    ConverterName{"io.debezium.converters.ByteBufferConverter", "binary", {}},
    ConverterName{"org.apache.kafka.connect.converters.ByteArrayConverter", "binary", {}},
};
constexpr std::string_view kOfMongo = "io.debezium.converters.ByteArrayConverter";

struct Reason {
    std::string_view prefix;
    std::string_view why;
};

// What has no place in outbox.toml, and why nothing is missing, or what to do. The first that fits.
constexpr std::array kReasons{
    Reason{"slot.", "the relay's slot is temporary and named by itself"},
    Reason{"publication.", "the relay's publication is called outbox"},
    Reason{"plugin.name", "the relay reads the table and pgoutput"},
    Reason{"snapshot.", "the relay begins with the rows that the table holds"},
    Reason{"tombstones.on.delete", "the removal of a row is no event"},
    Reason{"heartbeat.", "the relay keeps none of the server's log"},
    Reason{"offset.", "the relay's ledger stands in the database"},
    Reason{"max.", "see batch_size and max_unrecorded in docs/reference/options.md"},
    Reason{"poll.interval.ms", "see poll_idle_ms in docs/reference/options.md"},
    Reason{"tasks.max", "one relay leads, any number stand by"},
    Reason{"connector.class", "the format is made for PostgreSQL's connector"},
    Reason{"name", "the route is named after its destination"},
    Reason{"column.", "columns are read as they are; give the event a column without it"},
    Reason{"converters", "custom converters are Java; give the event a text column"},
    Reason{"database.", "write it into the URL under [source], as libpq names it"},
    Reason{"sink.kafka.producer.", "see [route.kafka] for librdkafka's options"},
    Reason{"sink.", "the relay's sinks are chosen by the URL of --to"},
    Reason{"quarkus.", "for logs and HTTP see --log-level, --log-format and --admin"},
    Reason{"key.converter.delegate.", "a bytea alone is written by this converter"},
    Reason{"value.converter.delegate.",
           "a bytea alone is written by this converter, and the relay sends no heartbeats; for a "
           "payload of another type write value = \"json\" or \"simplestring\" under [debezium]"},
    Reason{"key.converter.replace.null", "it changes no record of the event router"},
    Reason{"value.converter.replace.null", "it changes no record of the event router"},
    Reason{"predicates", "a route takes events by aggregate_type and event_type"},
    Reason{"", "it has no counterpart; docs/debezium.md says what the format takes"},
};

// Options of the connector that the format has under the same name.
constexpr std::array<std::string_view, 4> kOfSource{"topic.prefix", "decimal.handling.mode",
                                                    "time.precision.mode", "binary.handling.mode"};
constexpr std::array<std::string_view, 3> kParts{"key", "value", "header"};
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kServers = "sink.kafka.producer.bootstrap.servers";

std::string as_toml(std::string_view text) {
    std::string json;
    append_json_string(text, json);
    std::string out;
    for (const char c : json) {
        if (c == '\x7F') {
            out += "\\u007F";  // JSON has it as it is
        } else {
            out += c;
        }
    }
    return out;
}

std::string with_dollars(std::string_view text) {
    std::string out;
    for (const char c : text) out.append(c == '$' ? 2 : 1, c);  // "$$" is a dollar
    return out;
}

std::string quoted(std::string_view text) {
    return with_dollars(as_toml(text));
}

// What Debezium Server is not to expand has a backslash before it, and loses it.
std::string without_escapes(std::string_view value) {
    std::string out;
    for (std::size_t i = 0; i < value.size(); ++i) {
        if (value.substr(i).starts_with("\\${")) continue;
        out += value[i];
    }
    return out;
}

// "${NAME}" of Debezium Server, or "${PROVIDER:NAME}" of Kafka Connect, which stands for what only
// the one that runs it knows.
bool has_expression(std::string_view value, bool server) {
    for (std::size_t at = 0; (at = value.find("${", at)) != std::string_view::npos; at += 2) {
        const std::string_view inner = value.substr(at + 2, value.find('}', at) - at - 2);
        if (server ? at == 0 || value[at - 1] != '\\' : inner.find(':') != std::string_view::npos) {
            return true;
        }
    }
    return false;
}

// The name of the environment's variable that is all of the value; empty: it is none.
std::string_view variable_of(std::string_view value, bool server) {
    const std::string_view begin = server ? "${" : "${env:";
    if (!value.starts_with(begin) || !value.ends_with('}')) return {};
    value.remove_prefix(begin.size());
    value.remove_suffix(1);
    const bool is_name = std::all_of(value.begin(), value.end(),
                                     [](char c) { return c == '_' || is_letter_or_digit(c); });
    return is_name ? value : std::string_view();
}

// Hosts as the client of Java takes them: blanks, and a protocol that it does not look at.
std::string hosts_of(std::string_view list) {
    std::string out;
    while (true) {
        const std::size_t comma = list.find(',');
        std::string_view host = dbz::java_trim(list.substr(0, comma));
        const std::size_t protocol = host.find("://");
        if (protocol != std::string_view::npos) host.remove_prefix(protocol + 3);
        out.append(out.empty() ? "" : ",").append(host);
        if (comma == std::string_view::npos) return out;
        list.remove_prefix(comma + 1);
    }
}

bool is_additional(const dbz::Options& options, const std::string& column) {
    return column != options.schema_version &&
           std::any_of(options.additional.begin(), options.additional.end(),
                       [&](const auto& field) { return field.column == column; });
}

bool is_of_server(const std::vector<Property>& properties) {
    return std::any_of(properties.begin(), properties.end(), [](const Property& one) {
        return one.name.starts_with("debezium.source.");
    });
}

bool is_ascii(std::string_view text) {
    return std::none_of(text.begin(), text.end(),
                        [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

std::string from_latin_1(std::string_view text) {
    std::string out;
    for (const char c : text) append_utf8(static_cast<unsigned char>(c), out);
    return out;
}

class Import {
  public:
    explicit Import(std::vector<Property> properties) : properties_(std::move(properties)) {}

    Result<DebeziumImport> make() {
        sort_out();
        if (router_.empty()) {
            return config_error("the file", "among its transforms there is none of the type " +
                                                std::string(kRouter) +
                                                "; only the outbox event router is imported, from "
                                                "properties (NAME=VALUE on each line) or a "
                                                "connector's JSON");
        }
        for (const auto& [name, property] : known_) take(name, *property);
        if (!refused_.ok()) return refused_;
        if (!server_) {
            options_.emplace("header", "simplestring");
            options_["connect"] = "true";
        }
        const auto options = dbz::parse_options(options_);
        if (!options.ok()) return options.status();
        const auto topics =
            dbz::TopicRouter::make(options->topic_regex, options->topic_replacement);
        if (!topics.ok()) return topics.status();
        note_what_server_ignores(*options);
        leave_out_what_is_no_url();
        std::sort(out_.left_out.begin(), out_.left_out.end(),
                  [](const auto& a, const auto& b) { return a.line < b.line; });
        write(*options);
        return std::move(out_);
    }

  private:
    // Names without the prefix of Debezium Server, the last of each; and which transform it is.
    void sort_out() {
        constexpr std::string_view kServer = "debezium.";
        server_ = is_of_server(properties_);
        for (Property& property : properties_) {
            std::string name = property.name;
            if (server_ && name.starts_with(kServer)) name.erase(0, kServer.size());
            if (server_ && name.starts_with("source.")) name.erase(0, sizeof "source." - 1);
            property.value = dbz::java_trim(property.value);
            known_[name] = &property;
        }
        find_router();
    }

    // The first of the transforms that run.
    void find_router() {
        const auto listed = known_.find("transforms");
        if (listed == known_.end()) return;
        std::string_view rest = listed->second->value;
        while (router_.empty()) {
            const std::size_t comma = rest.find(',');
            const std::string alias(dbz::java_trim(rest.substr(0, comma)));
            const auto type = known_.find("transforms." + alias + ".type");
            if (type != known_.end() && type->second->value == kRouter) {
                router_ = "transforms." + alias + ".";
            }
            if (comma == std::string_view::npos) return;
            rest.remove_prefix(comma + 1);
        }
    }

    void leave_out(const Property& property, std::string_view why) {
        out_.left_out.push_back({property.line, property.name, std::string(why)});
    }

    void take(const std::string& name, Property& property) {
        if (!is_utf8(property.name) || !is_utf8(property.value)) {
            return leave_out(property,
                             "it is not UTF-8, as which Debezium Server reads its file; write it "
                             "in UTF-8, or its letters as \\uXXXX");
        }
        const bool is_place = part_of_url(name) != nullptr || name == kServers;
        const bool is_variable = is_place && !variable_of(property.value, server_).empty();
        if (has_expression(property.value, server_) && !is_variable) {
            return leave_out(property,
                             "it stands for something that Outbox does not look up; write what "
                             "that is in its place");
        }
        if (server_ && !is_variable) property.value = without_escapes(property.value);
        if (name.starts_with(router_)) return take_router(name.substr(router_.size()), property);
        if (name.starts_with("transforms")) return take_transforms(name, property);
        if (std::find(kOfSource.begin(), kOfSource.end(), name) != kOfSource.end()) {
            options_[name] = property.value;
            return;
        }
        if (take_format(name, property) || take_source(name, property) ||
            take_sink(name, property)) {
            return;
        }
        const auto reason = std::find_if(kReasons.begin(), kReasons.end(), [&](const Reason& one) {
            return name.starts_with(one.prefix);
        });
        leave_out(property, reason->why);
    }

    void take_router(const std::string& name, const Property& property) {
        const auto& texts = dbz::option_texts();
        const bool known = std::any_of(texts.begin(), texts.end(), [&](const auto& one) {
            return one.name == name &&
                   (one.name.starts_with("table.") || one.name.starts_with("route."));
        });
        if (name == "type") return;
        if (name == "table.op.invalid.behavior" && property.value == "fatal") {
            return leave_out(property,
                             "the relay reads rows and sees no update of one; let the table refuse "
                             "updates by a trigger");
        }
        if (known) {
            options_[name] = property.value;
        } else if (name == "predicate" || name == "negate") {
            leave_out(property, "a route takes events by aggregate_type and event_type");
        } else {
            leave_out(property, "this format has no such option of the event router");
        }
    }

    void take_transforms(const std::string& name, const Property& property) {
        const std::string alias = router_.substr(11, router_.size() - 12);  // transforms.NAME.
        if (name == "transforms" && property.value == alias) return;
        leave_out(property,
                  "only the outbox event router is a format here; consumers would notice "
                  "that another transform is gone");
    }

    // format.value = json, value.converter.schemas.enable = false, and their like.
    bool take_format(const std::string& name, const Property& property) {
        for (const std::string_view part : kParts) {
            const std::string own(part);
            if (server_ && name == "format." + own) {
                options_[own] = property.value;
                return true;
            }
            const std::string inner = server_ ? "format." + own + "." : own + ".converter.";
            for (const char* option : {"schemas.enable", "decimal.format"}) {
                if (name == inner + option) {
                    options_[own + "." + option] = property.value;
                    return true;
                }
                if (server_ && name == std::string("format.") + option) {
                    for (const std::string_view each : kParts) {
                        options_.emplace(std::string(each) + "." + option, property.value);
                    }
                    return true;
                }
            }
            if (!server_ && name == own + ".converter") return take_converter(own, property);
        }
        return false;
    }

    bool take_converter(const std::string& part, const Property& property) {
        const bool header = part == "header";
        std::string known;
        for (const ConverterName& one : kConverters) {
            const std::string_view word = header ? one.of_header : one.of_key_and_value;
            if (word.empty()) continue;
            if (one.java == property.value) {
                options_[part] = word;
                return true;
            }
            known.append(known.empty() ? "" : ", ").append(one.java);
        }
        refuse(property, property.value == kOfMongo
                             ? "Debezium itself ends with it at a bytea of PostgreSQL; it is for "
                               "MongoDB, and io.debezium.converters.BinaryDataConverter for "
                               "PostgreSQL"
                             : "of a " + part + " there are " + known +
                                   "; records in Avro or Protobuf need a schema registry, which "
                                   "this format does not speak to");
        return true;
    }

    // The first alone is told.
    void refuse(const Property& property, const std::string& why) {
        if (!refused_.ok()) return;
        refused_ = config_error("the file, line " + std::to_string(property.line),
                                property.name + " = " + property.value + ": " + why);
    }

    bool take_source(const std::string& name, const Property& property) {
        if (name == "table.include.list") {
            const std::string& list = property.value;
            const bool plain = std::all_of(list.begin(), list.end(), [](char c) {
                return c == '.' || c == '_' || is_letter_or_digit(c);
            });
            if (plain && std::count(list.begin(), list.end(), '.') == 1) {
                table_ = list;
            } else {
                leave_out(property, "a relay reads one table; name it with --table");
            }
            return true;
        }
        if (std::string* const part = part_of_url(name)) {
            const std::string_view variable = variable_of(property.value, server_);
            const bool is_address = part == &host_ && property.value.find(':') != std::string::npos;
            *part = !variable.empty() ? "${" + std::string(variable) + "}"
                    : is_address      ? "[" + with_dollars(property.value) + "]"
                                      : path_part(property.value);
            return true;
        }
        if (name == "database.password") {
            leave_out(property,
                      "no file needs it twice: set PGPASSWORD, or write "
                      "?password_file=PATH into the URL under [source]");
            return true;
        }
        return false;
    }

    std::string* part_of_url(std::string_view name) {
        if (name == "database.hostname") return &host_;
        if (name == "database.port") return &port_;
        if (name == "database.user") return &user_;
        return name == "database.dbname" ? &database_ : nullptr;
    }

    bool take_sink(const std::string& name, const Property& property) {
        if (name == "sink.type") {
            if (property.value != "kafka") {
                leave_out(property, "name the destination with --to; `outbox sinks` lists them");
            }
            return true;
        }
        if (name == kServers) {
            const std::string_view variable = variable_of(property.value, server_);
            to_ = "kafka://" + (variable.empty() ? with_dollars(hosts_of(property.value))
                                                 : "${" + std::string(variable) + "}");
            return true;
        }
        constexpr std::string_view kSerializer = ".serializer";
        return name.starts_with("sink.kafka.producer.") && name.ends_with(kSerializer);
    }

    void note_what_server_ignores(const dbz::Options& options) {
        if (!server_) return;
        const bool placed = std::any_of(
            options.additional.begin(), options.additional.end(),
            [](const auto& field) { return field.placement == dbz::Placement::kPartition; });
        constexpr std::string_view kWhy =
            "kept, and without effect as in Debezium Server 3.0, which hands neither timestamp nor "
            "partition on to Kafka; connect = true under [debezium] sets them";
        const auto note = [&](const char* option) {
            leave_out(*known_.at(router_ + option), kWhy);
        };
        if (placed) note("table.fields.additional.placement");
        if (!options.timestamp.empty()) note("table.field.event.timestamp");
    }

    // A relay would not start with it.
    void leave_out_what_is_no_url() {
        if (!to_.empty() && !names_servers(to_)) {
            leave_out(*known_.at(std::string(kServers)),
                      "it is no list of HOST:PORT; name them with --to");
            to_.clear();
        }
        if (!host_.empty() && !names_servers(database_url())) {
            leave_out(*known_.at("database.hostname"),
                      "with what else the file says it makes no URL; write one under [source]");
            host_.clear();
        }
    }

    // Whether hosts, and ports that are numbers, are all that stands up to the path.
    static bool names_servers(const std::string& text) {
        const auto url = parse_url(with_any_value(text));
        return url.ok() && !url->authority.empty() && url->query.empty() &&
               url->authority.find_first_of(" \t#\"\\") == std::string::npos;
    }

    // With 1 for each variable.
    static std::string with_any_value(std::string_view text) {
        std::string out;
        while (true) {
            const std::size_t begin = text.find("${");
            const std::size_t end = text.find('}', begin);
            if (begin == std::string_view::npos || end == std::string_view::npos) break;
            out.append(text.substr(0, begin)).append("1");
            text.remove_prefix(end + 1);
        }
        return out.append(text);
    }

    void write(const dbz::Options& options) {
        std::string& out = out_.toml;
        out = "# What `outbox import debezium` made of " +
              std::string(server_ ? "Debezium Server's" : "Kafka Connect's") + " options.\n";
        if (!to_.empty()) out += "to = [" + as_toml(to_) + "]\n";
        out += "format = \"debezium\"\n\n[source]\n";
        write_source();
        out += "# Rows that every route has published are removed.\nafter_publish = \"delete\"\n";
        out += "\n[source.table]\npreset = \"debezium\"\n";
        if (!table_.empty()) out += "name = " + quoted(table_) + "\n";
        write_columns(options);
        out += "\n[debezium]\n";
        if (!server_) {
            out +=
                "# Where the file names no converter, the worker's counts: key, value, header.\n";
        }
        for (const auto& [name, value] : options_) {
            if (value == "true" || value == "false") {
                out += "\"" + name + "\" = " + value + "\n";
            } else {
                out += "\"" + name + "\" = " + quoted(value) + "\n";
            }
        }
    }

    [[nodiscard]] std::string database_url() const {
        return "postgresql://" + (user_.empty() ? "" : user_ + "@") + host_ +
               (port_.empty() ? "" : ":" + port_) + "/" + database_;
    }

    void write_source() {
        std::string& out = out_.toml;
        if (!host_.empty() && !database_.empty()) out += "url = " + as_toml(database_url()) + "\n";
    }

    void write_columns(const dbz::Options& options) {
        std::string& out = out_.toml;
        std::vector<std::pair<std::string, std::string>> mapped{
            {"id", options.id},
            {"aggregate_id", options.key},
            {"aggregate_type", options.route_by},
            {"payload", options.payload}};
        if (const auto type = options_.find("table.field.event.type"); type != options_.end()) {
            mapped.emplace_back("event_type", type->second);
        }
        std::string extra;
        for (const std::string& column : dbz::columns_of(options)) {
            if (std::any_of(mapped.begin(), mapped.end(),
                            [&](const auto& field) { return field.second == column; })) {
                continue;
            }
            const bool may_miss = !options.error_on_missing && is_additional(options, column);
            extra += (extra.empty() ? "" : ", ") + quoted(may_miss ? column + "?" : column);
        }
        if (!extra.empty()) out += "metadata_columns = [" + extra + "]\nmetadata_as = \"text\"\n";
        out += "\n[source.table.columns]\n";
        for (const auto& [field, column] : mapped) out += field + " = " + quoted(column) + "\n";
    }

    std::vector<Property> properties_;
    bool server_ = false;
    std::map<std::string, Property*> known_;
    std::string router_;  // "transforms.NAME."
    std::map<std::string, std::string> options_;
    std::string table_;
    std::string host_;
    std::string port_;
    std::string user_;
    std::string database_;
    std::string to_;
    Status refused_;
    DebeziumImport out_;
};

}  // namespace

Result<DebeziumImport> import_debezium(std::string_view text) {
    // Windows' editors begin a file with it.
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    if (!is_connector_json(text)) {
        auto properties = read_properties(text);
        if (is_ascii(text) || is_of_server(properties)) return Import(std::move(properties)).make();
        // java.util.Properties, by which Kafka Connect reads them; Debezium Server takes UTF-8.
        return Import(read_properties(from_latin_1(text))).make();
    }
    auto properties = read_connector_json(text);
    if (!properties.ok()) return properties.status();
    return Import(std::move(*properties)).make();
}

}  // namespace outbox::runtime
