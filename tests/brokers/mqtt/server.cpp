#include "tests/brokers/mqtt/server.h"

#include <nlohmann/json.hpp>
#include <sstream>

namespace outbox::test {

MqttServer::MqttServer(const std::filesystem::path& tls, const std::string& settings)
    : BrokerServer({.name = "mqtt", .ready = " running", .tls = tls, .settings = settings}) {
    start();
}

std::string MqttServer::url(const std::string& user, const std::string& password) const {
    return "mqtt://" + user + ":" + password + "@127.0.0.1:" + std::to_string(port());
}

int MqttServer::tls_port() const {
    return std::stoi(read_file(folder() / "tls_port"));
}

void MqttServer::subscribe(const std::string& topic) {
    ask({"subscribe", topic, topic});
}

std::vector<Arrived> MqttServer::arrived(const std::string& topic, std::size_t count) {
    std::istringstream lines(ask({"read", topic, std::to_string(count), "240"}));
    std::vector<Arrived> records;
    for (std::string text; std::getline(lines, text);) {
        const auto line = nlohmann::json::parse(text);
        Arrived record;
        if (!line["id"].is_null()) record.id = line["id"];
        if (!line["key"].is_null()) record.key = line["key"];
        if (!line["value"].is_null()) record.value = decode_base64(line["value"]);
        for (const auto& header : line["headers"]) {
            record.headers.emplace_back(header[0].get<std::string>(), header[1].get<std::string>());
        }
        records.push_back(std::move(record));
    }
    return records;
}

std::string MqttServer::ask(std::vector<std::string> command) {
    command.insert(command.begin(), std::to_string(port()));
    return client(command);
}

MqttServer& shared_mqtt() {
    static MqttServer server;
    return server;
}

}  // namespace outbox::test
