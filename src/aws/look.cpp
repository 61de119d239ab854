#include "aws/look.h"

#include <vector>

#include "aws/client.h"
#include "aws/message.h"

namespace outbox::aws {
namespace {

constexpr std::size_t kMostNames = 10;  // named one by one

Result<std::vector<std::string>> list_topics(const Config& config) {
    const Service& service = *config.service;
    const auto answer = Client(config).ask(service.list(), config.connect_timeout);
    if (!answer.ok()) return answer.error();
    auto listed = service.read_list(*answer);
    if (listed) return *std::move(listed);
    return to_error(service,
                    {"NO SERVICE", "its answer is no list of " + std::string(service.topics)},
                    name_of_server(config));
}

void append_names(const std::vector<std::string>& names, std::string& out) {
    for (std::size_t i = 0; i < names.size() && i < kMostNames; ++i) {
        out += (i == 0 ? "" : ", ") + names[i];
    }
    if (names.size() > kMostNames) {
        out += " and " + std::to_string(names.size() - kMostNames) + " more";
    }
}

}  // namespace

Status look_at_service(const Config& config) {
    const auto listed = list_topics(config);
    if (listed.ok() || listed.error().code == ErrorCode::kNoRights) return {};
    return listed.error();
}

Result<std::string> describe_topics(const Config& config) {
    const auto listed = list_topics(config);
    const auto origin =
        net::origin_of_key(config, config, config.region, config.service->product.prefix);
    if (!origin.ok()) return origin.error();
    const std::string all(config.service->topics);
    std::string text =
        "only " + all +
        " whose names end with .fifo keep the order of keys and drop repeats (5 min); access "
        "key: " +
        *origin;
    if (!listed.ok() && listed.error().code == ErrorCode::kNoRights) {
        return text + "; which there are is not known: the key may not list " + all;
    }
    if (!listed.ok()) return listed.error();
    std::vector<std::string> fifo;
    std::vector<std::string> standard;
    for (const std::string& url : *listed) {
        const std::string name = url.substr(url.find_last_of("/:") + 1);
        (is_fifo(name) ? fifo : standard).push_back(name);
    }
    if (!standard.empty()) {
        text += "; standard, without an order and with repeats: ";
        append_names(standard, text);
    }
    if (!fifo.empty()) {
        text += "; FIFO: ";
        append_names(fifo, text);
    }
    return text;
}

}  // namespace outbox::aws
