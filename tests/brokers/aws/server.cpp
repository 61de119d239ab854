#include "tests/brokers/aws/server.h"

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

const std::string kSource = OUTBOX_SOURCE_DIR;
const std::vector<std::string> kPython{kSource + "/script/clients", "python"};

std::vector<std::string> aws_command(const std::string& certificate) {
    std::vector<std::string> command = kPython;
    command.insert(command.end(), {"-B", kSource + "/tests/brokers/aws/aws.py"});
    if (!certificate.empty()) command.push_back(certificate);
    return command;
}

// moto wants a key, whatever it is.
std::string url_of(const std::string& name, int port) {
    const std::string key = name == "sns" ? "any:s3cret@" : "";
    return name + "+http://" + key + "127.0.0.1:" + std::to_string(port);
}

}  // namespace

AwsServer::AwsServer(const std::string& name, const std::string& ready, const std::string& settings)
    : BrokerServer({.name = name, .ready = ready, .settings = settings, .python = kPython}),
      name_(name) {
    start();
}

std::string AwsServer::url() const {
    return url_of(name_, port());
}

void AwsServer::make(const std::string& name, const std::vector<std::string>& attributes) {
    std::vector<std::string> command{"make", name};
    command.insert(command.end(), attributes.begin(), attributes.end());
    ask(command);
}

void AwsServer::remove(const std::string& name) {
    ask({"remove", name});
}

std::vector<std::string> AwsServer::read_lines(const std::string& queue, std::size_t count,
                                               int readers) {
    std::istringstream text(
        ask({"read", queue, std::to_string(count), "240", std::to_string(readers)}));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
}

std::vector<Arrived> AwsServer::arrived(const std::string& queue, std::size_t count, int readers) {
    std::vector<Arrived> records;
    for (const std::string& text : read_lines(queue, count, readers)) {
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

std::string AwsServer::ask(std::vector<std::string> command) {
    command.insert(command.begin(), std::to_string(port()));
    return client(command);
}

Way::Way(const AwsServer& server)
    : to_(server.port()),
      port_(free_port()),
      scheme_(server.url().substr(0, server.url().find('+'))) {
    open();
}

std::string Way::url() const {
    return url_of(scheme_, port_);
}

void Way::open() {
    process_.emplace(
        ProcessOptions{.command = {"/usr/bin/python3", "-B", kSource + "/tests/brokers/forward.py",
                                   std::to_string(port_), std::to_string(to_)}});
    const auto serves = eventually(60s, "the way is open", [this] {
        return process_->stdout_text().find("forwards") != std::string::npos;
    });
    if (!serves) throw std::runtime_error("forward.py: " + process_->stderr_text());
}

void Way::cut() {
    process_->kill(SIGKILL);
    process_->wait(60s);
    process_.reset();
}

void Way::pause() {
    process_->kill(SIGSTOP);
}

void Way::resume() {
    process_->kill(SIGCONT);
}

AwsService::AwsService(std::string name, const std::string& certificate)
    : name_(std::move(name)), process_({.command = aws_command(certificate)}) {
    const auto serves = eventually(60s, "the service's port", [this] {
        port_ = process_.stdout_text();
        return port_.ends_with('\n');
    });
    if (!serves) throw std::runtime_error("aws.py does not start: " + process_.stderr_text());
    port_.pop_back();
}

std::string AwsService::address(const std::string& host) const {
    return host + ":" + port_;
}

std::string AwsService::url(const std::string& key, const std::string& secret) const {
    return name_ + "+http://" + key + ":" + secret + "@" + address();
}

}  // namespace outbox::test
