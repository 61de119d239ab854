#include "tests/schema/registry_server.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "core/json_text.h"
#include "tests/support/eventually.h"
#include "tests/support/http_client.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kPath = "/apis/ccompat/v7";

std::vector<std::string> command(int port, int to_port, const std::string& folder,
                                 const std::string& login, const std::string& tls) {
    std::vector<std::string> words{"/usr/bin/python3",
                                   "-B",
                                   std::string(OUTBOX_SOURCE_DIR) + "/tests/schema/front.py",
                                   std::to_string(port),
                                   std::to_string(to_port),
                                   folder};
    if (!login.empty()) words.insert(words.end(), {"--login", login});
    if (!tls.empty()) words.insert(words.end(), {"--tls", tls});
    return words;
}

}  // namespace

RegistryServer::RegistryServer()
    : BrokerServer({.name = "apicurio", .ready = "Listening on: http"}) {
    start();
}

std::string RegistryServer::url() const {
    return "http://127.0.0.1:" + std::to_string(port()) + std::string(kPath);
}

std::uint32_t RegistryServer::add(const std::string& subject, const std::string& schema,
                                  const std::string& type, const std::string& references) {
    std::string body =
        R"({"schemaType": ")" + type + R"(", "references": )" + references + R"(, "schema": )";
    append_json_string(schema, body);
    body += '}';
    const HttpAnswer answer =
        http(port(), "POST", std::string(kPath) + "/subjects/" + subject + "/versions", body,
             "Content-Type: application/vnd.schemaregistry.v1+json\r\n");
    const std::size_t at = answer.body.find("\"id\":");
    if (answer.status != 200 || at == std::string::npos) {
        throw std::runtime_error("the registry takes no schema: " + answer.body);
    }
    return static_cast<std::uint32_t>(std::stoul(answer.body.substr(at + 5)));
}

RegistryServer& shared_registry() {
    static RegistryServer server;
    return server;
}

Front::Front(int to_port, const std::string& login, const std::string& tls)
    : port_(free_port()),
      process_({.command = command(port_, to_port, folder_.path().string(), login, tls)}) {
    const auto ready = eventually(60s, "the front serves", [&] {
        return !process_.running() || process_.stdout_text() == "ready\n";
    });
    if (!ready || !process_.running()) {
        throw std::runtime_error("the front does not start: " + process_.stderr_text());
    }
}

std::string Front::url(const std::string& login) const {
    return "http://" + login + "127.0.0.1:" + std::to_string(port_) + std::string(kPath);
}

// Whole at once, as it is read at any time.
void Front::set_mode(const std::string& mode) const {
    std::ofstream(folder_ / "new") << mode;
    std::filesystem::rename(folder_ / "new", folder_ / "mode");
}

std::size_t Front::asked(const std::string& part) const {
    std::istringstream lines(read_file(folder_ / "requests"));
    std::size_t count = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.find(part) != std::string::npos) ++count;
    }
    return count;
}

}  // namespace outbox::test
