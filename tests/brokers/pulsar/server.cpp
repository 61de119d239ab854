#include "tests/brokers/pulsar/server.h"

#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "tests/support/process.h"

namespace outbox::test {
namespace {

using nlohmann::json;

const std::string kTests = std::string(OUTBOX_SOURCE_DIR) + "/tests/brokers/pulsar/";
const std::string kScript = std::string(OUTBOX_SOURCE_DIR) + "/script/servers/pulsar";
const std::vector<std::string> kPython = {std::string(OUTBOX_SOURCE_DIR) + "/script/clients",
                                          "python"};

std::string id_of(const Arrived& record) {
    for (const auto& [name, value] : record.headers) {
        if (name == "id") return value;
    }
    return {};
}

}  // namespace

PulsarServer::PulsarServer(const std::filesystem::path& tls, const std::string& settings)
    : BrokerServer({.name = "pulsar",
                    .ready = "setup completed",
                    .tls = tls,
                    .settings = settings,
                    .python = kPython}) {
    start();
}

std::string PulsarServer::token(const std::string& name) const {
    return read_file(folder() / name);
}

std::string PulsarServer::url(const std::string& token_name) const {
    return "pulsar://:" + token(token_name) + "@localhost:" + std::to_string(port());
}

int PulsarServer::tls_port() const {
    return std::stoi(read_file(folder() / "tls_port"));
}

std::string PulsarServer::read(const std::string& topic, std::size_t count) {
    return client(
        {folder().string(), std::to_string(port()), "read", topic, std::to_string(count), "240"});
}

std::vector<Arrived> PulsarServer::arrived(const std::string& topic, std::size_t count) {
    std::istringstream lines(read(topic, count));
    std::vector<Arrived> records;
    for (std::string text; std::getline(lines, text);) {
        const auto line = json::parse(text);
        Arrived record;
        if (!line["key"].is_null()) record.key = line["key"];
        if (!line["value"].is_null()) record.value = decode_base64(line["value"]);
        for (const auto& header : line["headers"]) {
            record.headers.emplace_back(header[0].get<std::string>(), header[1].get<std::string>());
        }
        record.id = id_of(record);
        records.push_back(std::move(record));
    }
    return records;
}

std::vector<Arrived> PulsarServer::arrived_in_java(const std::string& topic, std::size_t count) {
    std::istringstream lines(java({"read", topic, std::to_string(count)}));
    std::vector<Arrived> records;
    for (std::string text; std::getline(lines, text);) {
        const auto line = json::parse(text);
        Arrived record;
        if (!line["key"].is_null()) record.key = decode_base64(line["key"]);
        if (!line["value"].is_null()) record.value = decode_base64(line["value"]);
        for (const auto& header : line["headers"]) {
            record.headers.emplace_back(decode_base64(header[0]), decode_base64(header[1]));
        }
        record.id = id_of(record);
        records.push_back(std::move(record));
    }
    return records;
}

std::vector<int> PulsarServer::places_in_java(const std::string& topic,
                                              const std::vector<std::string>& keys) {
    std::vector<std::string> words = {"place", topic};
    words.insert(words.end(), keys.begin(), keys.end());
    std::istringstream lines(java(words));
    std::vector<int> places;
    for (int place = 0; lines >> place;) places.push_back(place);
    return places;
}

std::string PulsarServer::java(std::vector<std::string> words) {
    std::vector<std::string> command = {kScript,
                                        "java",
                                        "-Dfile.encoding=UTF-8",
                                        kTests + "JavaClient.java",
                                        "pulsar://localhost:" + std::to_string(port()),
                                        token()};
    command.insert(command.end(), words.begin(), words.end());
    const Finished done =
        run({.command = std::move(command), .environment = {{"LC_ALL", "C.UTF-8"}}},
            std::chrono::seconds(180));
    if (done.status.code != 0) throw std::runtime_error(done.err + log_tail());
    return done.out;
}

std::string PulsarServer::admin(const std::string& method, const std::string& path,
                                const std::string& body) {
    std::vector<std::string> words = {folder().string(), std::to_string(port()), "admin", method,
                                      path};
    if (!body.empty()) words.push_back(body);
    return client(words);
}

void PulsarServer::make_partitions(const std::string& topic, int count) {
    admin("PUT", "persistent/public/default/" + topic + "/partitions", std::to_string(count));
}

void PulsarServer::unload(const std::string& topic) {
    admin("PUT", "persistent/public/default/" + topic + "/unload");
}

void PulsarServer::make_namespace(
    const std::string& name, const std::vector<std::pair<std::string, std::string>>& policies) {
    admin("PUT", "namespaces/public/" + name);
    for (const auto& [path, body] : policies) {
        admin("POST", "namespaces/public/" + name + "/" + path, body);
    }
}

std::vector<std::string> PulsarServer::command(std::vector<std::string> words) const {
    std::vector<std::string> all = kPython;
    all.insert(all.end(), {"-B", kTests + "client.py", folder().string(), std::to_string(port())});
    all.insert(all.end(), words.begin(), words.end());
    return all;
}

PulsarServer& shared_pulsar() {
    static PulsarServer server;
    return server;
}

}  // namespace outbox::test
