#include "tests/brokers/rabbitmq/server.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tests/support/eventually.h"
#include "tests/support/logs.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kStartDeadline = 180s;  // it takes seconds of a processor that others want, too
constexpr auto kStopDeadline = 60s;

std::string decode_base64(const std::string& text) {
    std::string out;
    unsigned value = 0;
    int bits = 0;
    for (const char c : text) {
        const std::string_view digits =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const std::size_t digit = digits.find(c);
        if (digit == std::string_view::npos) break;
        value = (value << 6U | static_cast<unsigned>(digit)) & 0xFFFFFFU;
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        out += static_cast<char>(value >> static_cast<unsigned>(bits) & 0xFFU);
    }
    return out;
}

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

RabbitmqServer::RabbitmqServer(const RabbitmqOptions& options)
    : options_(options), port_(free_port()) {
    std::ofstream(folder_ / "settings") << options_.settings << '\n';
    start();
}

std::string RabbitmqServer::url(const std::string& user, const std::string& password) const {
    return "amqp://" + user + ":" + password + "@127.0.0.1:" + std::to_string(port_) + "/";
}

int RabbitmqServer::tls_port() const {
    return std::stoi(read_file(folder_ / "server/tls_port"));
}

void RabbitmqServer::start() {
    if (running()) return;
    process_.emplace(ProcessOptions{
        .command = {std::string(OUTBOX_SOURCE_DIR) + "/script/servers/rabbitmq", "run", "--dir",
                    (folder_ / "server").string(), "--port", std::to_string(port_)},
        .environment = {{"RABBITMQ_TLS", options_.tls.string()},
                        {"RABBITMQ_SETTINGS", (folder_ / "settings").string()}},
        .output_folder = folder_.path(),
        .death_signal = SIGKILL});
    const auto end = std::chrono::steady_clock::now() + kStartDeadline;
    while (read_file(folder_ / "stdout").find("Server startup complete") == std::string::npos) {
        if (!process_->running() || std::chrono::steady_clock::now() >= end) {
            throw std::runtime_error("RabbitMQ does not start\n" + log_tail());
        }
        std::this_thread::sleep_for(20ms);
    }
}

void RabbitmqServer::stop() {
    process_->kill(SIGTERM);
    if (!process_->wait(kStopDeadline)) throw std::runtime_error("RabbitMQ does not stop\n");
    process_.reset();
}

void RabbitmqServer::kill() {
    process_->kill(SIGKILL);
    process_->wait(kStopDeadline);
    process_.reset();
}

void RabbitmqServer::pause() {
    process_->kill(SIGSTOP);
}
void RabbitmqServer::resume() {
    process_->kill(SIGCONT);
}
bool RabbitmqServer::running() {
    return process_ && process_->running();
}

std::string RabbitmqServer::python(std::vector<std::string> arguments, const std::string& url,
                                   const std::string& input) {
    arguments.insert(arguments.begin(),
                     {"/usr/bin/python3", "-B",
                      std::string(OUTBOX_SOURCE_DIR) + "/tests/brokers/rabbitmq/client.py", url});
    const Finished done = run({.command = std::move(arguments), .input = input}, 180s);
    if (done.status.code != 0) throw std::runtime_error(done.err + log_tail());
    return done.out;
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
    std::istringstream lines(python({"read", queue, std::to_string(count), "60"}, url()));
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

std::string RabbitmqServer::api(const std::string& method, const std::string& path,
                                const std::string& body) {
    const std::string port = read_file(folder_ / "server/management_port");
    std::vector<std::string> arguments = {"api", method, path};
    if (!body.empty()) arguments.push_back(body);
    return python(std::move(arguments),
                  "http://relay:s3cret@127.0.0.1:" + std::to_string(std::stoi(port)));
}

void RabbitmqServer::alarm(bool on) {
    control({"set_vm_memory_high_watermark", "absolute", on ? "1" : "1GB"});
}

void RabbitmqServer::set(const std::string& name, const std::string& value) {
    control({"eval", "application:set_env(rabbit, " + name + ", " + value + ")."});
}

void RabbitmqServer::control(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"sh", "/usr/lib/rabbitmq/bin/rabbitmqctl"});
    const std::filesystem::path folder = folder_ / "server";
    const Finished done =
        run({.command = std::move(arguments),
             .environment = {{"HOME", folder.string()},
                             {"LANG", "C.UTF-8"},
                             {"RABBITMQ_NODENAME", "outbox@localhost"},
                             {"RABBITMQ_CONF_ENV_FILE", "/dev/null"},
                             {"ERL_EPMD_PORT",
                              std::to_string(std::stoi(read_file(folder / "epmd_port")))}}},
            120s);
    if (done.status.code != 0) throw std::runtime_error(done.err + done.out);
}

std::string RabbitmqServer::log_tail() const {
    return test::log_tail(folder_ / "stdout") + test::log_tail(folder_ / "stderr");
}

RabbitmqServer& shared_rabbitmq() {
    static RabbitmqServer server;
    return server;
}

}  // namespace outbox::test
