#include "tests/brokers/rabbitmq/server.h"

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "tests/support/files.h"
#include "tests/support/process.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

std::string text_of(const nlohmann::json& value) {
    return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

RabbitmqMessage message_of(const nlohmann::json& line) {
    RabbitmqMessage message;
    message.record.id = text_of(line["id"]);
    if (!line["key"].is_null()) message.record.key = text_of(line["key"]);
    if (line["null"] != true) message.record.value = decode_base64(text_of(line["value"]));
    for (const auto& header : line["headers"]) {
        message.record.headers.emplace_back(text_of(header[0]), text_of(header[1]));
    }
    message.type = text_of(line["type"]);
    message.app_id = text_of(line["app_id"]);
    message.content_type = text_of(line["content_type"]);
    message.routing_key = text_of(line["routing_key"]);
    message.timestamp = line["timestamp"].is_null() ? 0 : line["timestamp"].get<long long>();
    message.delivery_mode = line["delivery_mode"];
    return message;
}

}  // namespace

RabbitmqServer::RabbitmqServer(const std::filesystem::path& tls, const std::string& settings)
    : BrokerServer({.name = "rabbitmq",
                    .ready = "Server startup complete",
                    .tls = tls,
                    .settings = settings}) {
    start();
}

std::string RabbitmqServer::url(const std::string& user, const std::string& password) const {
    return "amqp://" + user + ":" + password + "@127.0.0.1:" + std::to_string(port()) + "/";
}

int RabbitmqServer::tls_port() const {
    return std::stoi(read_file(folder() / "tls_port"));
}

std::string RabbitmqServer::python(std::vector<std::string> arguments, const std::string& url,
                                   const std::string& input) {
    arguments.insert(arguments.begin(), url);
    return client(arguments, input);
}

void RabbitmqServer::make_exchange(const std::string& name, const std::string& type) {
    python({"exchange", name, type}, url());
}

void RabbitmqServer::remove_exchange(const std::string& name) {
    python({"remove-exchange", name}, url());
}

void RabbitmqServer::make_queue(const std::string& name, const std::string& exchange,
                                const std::string& key, const std::string& arguments) {
    python({"declare", name, exchange, key.empty() ? name : key, arguments}, url());
}

void RabbitmqServer::remove_queue(const std::string& name) {
    python({"remove-queue", name}, url());
}

void RabbitmqServer::publish(const std::string& exchange, const std::vector<Letter>& letters) {
    std::string lines;
    for (const Letter& letter : letters) {
        nlohmann::json line = {{"id", letter.id},
                               {"topic", letter.topic},
                               {"key", nullptr},
                               {"value", letter.value.value_or("")},
                               {"headers", letter.headers}};
        if (letter.key) line["key"] = *letter.key;
        lines += line.dump() + '\n';
    }
    publish_json(exchange, lines);
}

void RabbitmqServer::publish_json(const std::string& exchange, const std::string& lines) {
    python({"publish", exchange}, url(), lines);
}

std::size_t RabbitmqServer::left(const std::string& queue) {
    return std::stoul(python({"left", queue}, url()));
}

std::vector<RabbitmqMessage> RabbitmqServer::read(const std::string& queue, std::size_t count) {
    std::istringstream lines(python({"read", queue, std::to_string(count), "240"}, url()));
    std::vector<RabbitmqMessage> messages;
    for (std::string line; std::getline(lines, line);) {
        messages.push_back(message_of(nlohmann::json::parse(line)));
    }
    return messages;
}

std::vector<Arrived> RabbitmqServer::arrived(const std::string& queue, std::size_t count) {
    std::vector<Arrived> records;
    for (RabbitmqMessage& message : read(queue, count))
        records.push_back(std::move(message.record));
    return records;
}

void RabbitmqServer::make_user(const std::string& name, const RabbitmqRights& rights) {
    api("PUT", "users/" + name, R"({"password":"pw","tags":""})");
    api("PUT", "permissions/%2F/" + name,
        nlohmann::json{
            {"configure", rights.configure}, {"write", rights.write}, {"read", rights.read}}
            .dump());
}

std::string RabbitmqServer::api(const std::string& method, const std::string& path,
                                const std::string& body) {
    const std::string port = read_file(folder() / "management_port");
    std::vector<std::string> arguments = {"api", method, path};
    if (!body.empty()) arguments.push_back(body);
    return python(std::move(arguments),
                  "http://relay:s3cret@127.0.0.1:" + std::to_string(std::stoi(port)));
}

void RabbitmqServer::alarm(bool on) {
    control({"set_vm_memory_high_watermark", "absolute", on ? "1" : "1GB"});
}

void RabbitmqServer::hang(const std::string& queue, bool on) {
    control({"eval", "{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"" +
                         queue + "\">>)), sys:" + (on ? "suspend" : "resume") +
                         "(amqqueue:get_pid(Q))."});
}

void RabbitmqServer::set(const std::string& name, const std::string& value) {
    control({"eval", "application:set_env(rabbit, " + name + ", " + value + ")."});
}

void RabbitmqServer::control(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"sh", "/usr/lib/rabbitmq/bin/rabbitmqctl"});
    const Finished done =
        run({.command = std::move(arguments),
             .environment = {{"HOME", folder().string()},
                             {"LANG", "C.UTF-8"},
                             {"RABBITMQ_NODENAME", "outbox@localhost"},
                             {"RABBITMQ_CONF_ENV_FILE", "/dev/null"},
                             {"ERL_EPMD_PORT",
                              std::to_string(std::stoi(read_file(folder() / "epmd_port")))}}},
            120s);
    if (done.status.code != 0) throw std::runtime_error(done.err + done.out);
}

RabbitmqRights rights_of_page(const std::string& user) {
    const std::regex line("set_permissions " + user + " '(.*?)' '(.*?)' '(.*?)'");
    const std::string page = read_file(GUIDE_PAGE);
    std::smatch found;
    if (!std::regex_search(page, found, line)) {
        throw std::runtime_error("the page gives " + user + " no rights");
    }
    return {found[1], found[2], found[3]};
}

std::string default_exchange_of_page() {
    const std::string page = read_file(GUIDE_PAGE);
    std::smatch found;
    if (!std::regex_search(page, found, std::regex("default exchange is called `(.*?)`"))) {
        throw std::runtime_error("the page does not say what the default exchange is called");
    }
    return found[1];
}

RabbitmqServer& shared_rabbitmq() {
    static RabbitmqServer server;
    return server;
}

}  // namespace outbox::test
