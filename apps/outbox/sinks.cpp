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

// How the order of a key is kept where something fails.
Promise order_of(const spi::SinkCapabilities& sink) {
    if (!sink.fail_stop_order) return {"one_at_a_time", "one event of a key at a time"};
    if (!sink.across_topics) return {"fail_stop_per_topic", "many of a key and topic at a time"};
    return {"fail_stop", "many events of a key at a time"};
}

ordered_json json_of(const Broker& broker) {
    const spi::SinkCapabilities& sink = *broker.capabilities;
    return {{"name", broker.name},
            {"schemes", broker.schemes},
            {"url", broker.urls},
            {"guarantee", guarantee_of(sink).name},
            {"order", order_of(sink).name},
            {"drops_repeats", text_or_null(std::string(broker.drops_repeats))},
            {"limits", text_or_null(std::string(broker.limits))}};
}

void print_sink(const Broker& broker) {
    const spi::SinkCapabilities& sink = *broker.capabilities;
    std::cout << coloured(Colour::kBold, broker.name) << "\n";
    print_field("url", std::string(broker.urls));
    print_field("guarantee", std::string(guarantee_of(sink).text));
    print_field("order", std::string(order_of(sink).text));
    print_field("drops repeats", std::string(broker.drops_repeats));
    print_field("limits", std::string(broker.limits));
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
