#include "tests/brokers/redis/server.h"

#include <nlohmann/json.hpp>
#include <sstream>

namespace outbox::test {

RedisServer::RedisServer(const std::filesystem::path& tls, const std::string& settings)
    : BrokerServer({.name = "redis",
                    .ready = "Ready to accept connections",
                    .tls = tls,
                    .settings = settings}) {
    start();
}

std::string RedisServer::url(const std::string& user, const std::string& password) const {
    return "redis://" + user + ":" + password + "@127.0.0.1:" + std::to_string(port()) + "/0";
}

int RedisServer::tls_port() const {
    return std::stoi(read_file(folder() / "tls_port"));
}

std::vector<Arrived> RedisServer::arrived(const std::string& stream, std::size_t count) {
    std::istringstream lines(client({url(), "read", stream, std::to_string(count), "240"}));
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

void RedisServer::publish(const std::string& stream, const std::vector<Letter>& letters) {
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
    client({url(), "publish", stream}, lines);
}

std::size_t RedisServer::left(const std::string& stream, const std::string& group) {
    return std::stoul(client({url(), "left", stream, group}));
}

std::string RedisServer::ask(std::vector<std::string> command) {
    command.insert(command.begin(), {url(), "do"});
    return client(command);
}

RedisServer& shared_redis() {
    static RedisServer server;
    return server;
}

}  // namespace outbox::test
