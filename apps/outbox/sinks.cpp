// What each kind of destination promises, as this build knows it.
#include <iostream>
#include <nlohmann/json.hpp>

#include "backend/backends.h"
#include "commands.h"
#include "print.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;

struct Promise {
    std::string_view name;  // stable, for machines
    std::string_view text;
};

Promise guarantee_of(const spi::SinkCapabilities& sink) {
    if (!sink.durable) return {"none", "none"};
    if (sink.guarantee == spi::Guarantee::kExactlyOnceKept) {
        return {"exactly_once_while_kept", "exactly once"};
    }
    return {"at_least_once", "at least once"};
}

const spi::SinkCapabilities& told_of(const Broker& broker) {
    return broker.told != nullptr ? *broker.told : *broker.capabilities;
}

// How the order of a key is kept where something fails.
Promise order_of(const spi::SinkCapabilities& sink) {
    if (!sink.fail_stop_order) return {"one_at_a_time", "one event of a key at a time"};
    if (!sink.across_topics) return {"fail_stop_per_topic", "many of a key and topic at a time"};
    return {"fail_stop", "many events of a key at a time"};
}

ordered_json or_null(std::string_view text) {
    return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json json_of(const RepeatsDropped& drops) {
    using Kind = RepeatsDropped::Kind;
    if (drops.kind == Kind::kNone) return nullptr;
    ordered_json out;
    if (drops.kind == Kind::kForTime) out = {{"kind", "for_time"}, {"seconds", drops.amount}};
    if (drops.kind == Kind::kOfLast) out = {{"kind", "of_last"}, {"ids", drops.amount}};
    if (drops.kind == Kind::kWhileKept) out = {{"kind", "while_kept"}};
    out["option"] = or_null(drops.option);
    out["setting"] = or_null(drops.setting);
    out["note"] = or_null(drops.note);
    return out;
}

ordered_json json_of(const RecordLimit& limit) {
    return {{"what", limit.what},
            {"most", limit.most == 0 ? ordered_json(nullptr) : ordered_json(limit.most)},
            {"unit", limit.unit},
            {"setting", or_null(limit.setting)}};
}

std::string_view name_of(OptionType type) {
    switch (type) {
        case OptionType::kFlag:
            return "flag";
        case OptionType::kInteger:
            return "integer";
        case OptionType::kPath:
            return "file";
        default:
            return "text";
    }
}

ordered_json json_of(const BackendOption& option) {
    ordered_json out{{"name", option.name}, {"type", name_of(option.type)}};
    if (option.type == OptionType::kInteger) {
        out["min"] = option.min;
        out["max"] = option.max;
        out["unit"] = or_null(option.unit);
    }
    out["default"] = or_null(option.fallback);
    out["required"] = option.required;
    out["meaning"] = option.help;
    return out;
}

template <typename Items>
ordered_json list_of(const Items& items) {
    ordered_json list = ordered_json::array();
    for (const auto& item : items) list.push_back(json_of(item));
    return list;
}

ordered_json json_of(const Broker& broker) {
    const spi::SinkCapabilities& sink = told_of(broker);
    return {{"name", broker.name},
            {"schemes", broker.schemes},
            {"url", broker.urls},
            {"guarantee", guarantee_of(sink).name},
            {"order", order_of(sink).name},
            {"unordered", or_null(broker.unordered)},
            {"drops_repeats", json_of(broker.drops_repeats)},
            {"limits", list_of(broker.limits)},
            {"options", list_of(broker.options)},
            {"other_options", or_null(broker.other_options)}};
}

std::string text_of(const RepeatsDropped& drops) {
    using Kind = RepeatsDropped::Kind;
    std::string out;
    if (drops.kind == Kind::kForTime) out = "for " + std::to_string(drops.amount) + " s";
    if (drops.kind == Kind::kOfLast) out = "of the last " + with_commas(drops.amount) + " ids";
    if (drops.kind == Kind::kWhileKept) out = "while it has the event";
    if (!drops.option.empty()) out += ", or as the option " + std::string(drops.option) + " says";
    if (!drops.setting.empty()) out += ", or as " + std::string(drops.setting) + " says";
    return drops.note.empty() ? out : out + "; " + std::string(drops.note);
}

std::string text_of(const RecordLimit& limit) {
    std::string out = std::string(limit.what) + ": ";
    if (limit.most != 0) out += with_commas(limit.most) + " " + std::string(limit.unit);
    if (limit.most != 0 && !limit.setting.empty()) out += ", or ";
    return out + std::string(limit.setting);
}

// "0 to 1000000 ids, 10000 if not set: ..."
std::string text_of(const BackendOption& option) {
    std::string out = std::string(option.name) + " (" + values_of(option);
    if (option.required) out += ", required";
    if (!option.fallback.empty()) out += "; default " + std::string(option.fallback);
    return out + "): " + std::string(option.help);
}

template <typename Items>
std::string lines_of(const Items& items) {
    std::string out;
    for (const auto& item : items) out += (out.empty() ? "" : "\n") + text_of(item);
    return out;
}

void print_sink(const Broker& broker) {
    const spi::SinkCapabilities& sink = told_of(broker);
    std::cout << coloured(Colour::kBold, broker.name) << "\n";
    print_field("url", std::string(broker.urls));
    print_field("guarantee", std::string(guarantee_of(sink).text));
    std::string order(order_of(sink).text);
    if (!broker.unordered.empty()) order += "; none in " + std::string(broker.unordered);
    print_field("order", order);
    print_field("drops repeats", text_of(broker.drops_repeats));
    print_field("limits", lines_of(broker.limits));
    print_field("options", broker.options.empty() ? std::string(broker.other_options)
                                                  : lines_of(broker.options));
}

}  // namespace

int run_sinks(const runtime::Invocation& invocation) {
    if (invocation.options.flag("json")) {
        ordered_json list = ordered_json::array();
        for (const Broker* broker : brokers()) list.push_back(json_of(*broker));
        print_json(list);
    } else {
        for (const Broker* broker : brokers()) {
            if (broker != brokers().front()) std::cout << "\n";
            print_sink(*broker);
        }
    }
    return runtime::kExitOk;
}

}  // namespace outbox::app
