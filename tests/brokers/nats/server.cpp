#include "tests/brokers/nats/server.h"

#include <nlohmann/json.hpp>
#include <sstream>

namespace outbox::test {

NatsServer::NatsServer(const std::filesystem::path& tls, const std::string& settings)
    : BrokerServer({.name = "nats",
                    .ready = "Server is ready",
                    .tls = tls,
                    .settings = settings,
                    .python = {std::string(OUTBOX_SOURCE_DIR) + "/script/clients", "python"}}) {
    start();
}

std::string NatsServer::url(const std::string& user, const std::string& password) const {
    return "nats://" + user + ":" + password + "@127.0.0.1:" + std::to_string(port());
}

void NatsServer::make_stream(const std::string& stream, const std::string& subject,
                             const std::vector<std::string>& options) {
    std::vector<std::string> command = {"stream", stream, subject};
    command.insert(command.end(), options.begin(), options.end());
    ask(command);
}

void NatsServer::make_consumer(const std::string& stream, const std::string& consumer,
                               const std::vector<std::string>& options) {
    std::vector<std::string> command = {"consumer", stream, consumer};
    command.insert(command.end(), options.begin(), options.end());
    ask(command);
}

std::vector<Arrived> NatsServer::arrived(const std::string& subject, std::size_t count) {
    std::istringstream lines(ask({"read", subject, std::to_string(count), "240"}));
    std::vector<Arrived> records;
    for (std::string text; std::getline(lines, text);) {
        const auto line = nlohmann::json::parse(text);
        Arrived record;
        record.id = line["id"];
        if (!line["key"].is_null()) record.key = line["key"];
        if (!line["value"].is_null()) record.value = decode_base64(line["value"]);
        for (const auto& header : line["headers"]) {
            record.headers.emplace_back(header[0].get<std::string>(), header[1].get<std::string>());
        }
        records.push_back(std::move(record));
    }
    return records;
}

void NatsServer::publish(const std::string& subject, const std::vector<Letter>& letters) {
    std::string lines;
    for (const Letter& letter : letters) {
        nlohmann::json line = {
            {"id", nullptr}, {"key", nullptr}, {"value", nullptr}, {"headers", letter.headers}};
        if (!letter.id.empty()) line["id"] = letter.id;
        if (letter.key) line["key"] = *letter.key;
        if (letter.value) line["value"] = *letter.value;
        std::erase_if(line["headers"].get_ref<nlohmann::json::array_t&>(),
                      [](const nlohmann::json& header) { return header[0] == "id"; });
        lines += line.dump() + '\n';
    }
    client({url(), "publish", subject}, lines);
}

std::size_t NatsServer::left(const std::string& stream, const std::string& consumer) {
    return std::stoul(ask({"left", stream, consumer}));
}

std::string NatsServer::ask(std::vector<std::string> command) {
    command.insert(command.begin(), url());
    return client(command);
}

NatsServer& shared_nats() {
    static NatsServer server;
    return server;
}

}  // namespace outbox::test
