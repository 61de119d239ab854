#include <outbox/consumer/metrics.h>

namespace outbox {
namespace {

// As the format wants a label's value.
std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '\n') {
            out += "\\n";
            continue;
        }
        if (c == '\\' || c == '"') out += '\\';
        out += c;
    }
    return out;
}

}  // namespace

std::string consumer_metrics(std::string_view consumer, const ConsumerStats& stats,
                             std::optional<std::int64_t> lag) {
    const std::string label = "{consumer=\"" + escaped(consumer) + "\"} ";
    std::string page;
    const auto add = [&](const std::string& name, const char* type, const char* help,
                         const std::string& value) {
        page += "# HELP outbox_inbox_" + name + " " + help + "\n# TYPE outbox_inbox_" + name + " " +
                type + "\noutbox_inbox_" + name + label + value + "\n";
    };
    const auto count = [&](const char* name, const char* help, std::uint64_t value) {
        add(name, "counter", help, std::to_string(value));
    };
    count("applied_total", "Messages applied for the first time.", stats.applied);
    count("repeats_total", "Messages dropped because the inbox knew them.", stats.repeats);
    count("failed_total", "Attempts that failed and counted.", stats.failed);
    count("dead_total", "Messages moved to the dead letters.", stats.dead);
    count("conflicts_total", "Transactions run again after a conflict.", stats.conflicts);
    if (lag) add("lag", "gauge", "Messages that are not applied yet.", std::to_string(*lag));
    return page;
}

}  // namespace outbox
