#include "tests/net/key_server.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/support/eventually.h"
#include "tests/support/http_client.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

const std::map<std::string, std::string> kUnset{
    {"AWS_ACCESS_KEY_ID", ""},
    {"AWS_SECRET_ACCESS_KEY", ""},
    {"AWS_SESSION_TOKEN", ""},
    {"AWS_PROFILE", ""},
    {"AWS_SHARED_CREDENTIALS_FILE", ""},
    {"AWS_WEB_IDENTITY_TOKEN_FILE", ""},
    {"AWS_ROLE_ARN", ""},
    {"AWS_ROLE_SESSION_NAME", ""},
    {"AWS_ENDPOINT_URL", ""},
    {"AWS_ENDPOINT_URL_STS", ""},
    {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", ""},
    {"AWS_CONTAINER_CREDENTIALS_FULL_URI", ""},
    {"AWS_CONTAINER_AUTHORIZATION_TOKEN", ""},
    {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", ""},
    {"AWS_EC2_METADATA_SERVICE_ENDPOINT", ""},
    {"AWS_CA_BUNDLE", ""},
    {"AWS_EC2_METADATA_DISABLED", "true"},
};

std::vector<std::string> command(const std::string& certificate) {
    std::vector<std::string> all{"/usr/bin/python3", "-B", KEY_SERVER};
    if (!certificate.empty()) all.push_back(certificate);
    return all;
}

void set_variable(const std::string& name, const std::string& value) {
    if (value.empty()) {
        ::unsetenv(name.c_str());
    } else {
        ::setenv(name.c_str(), value.c_str(), 1);
    }
}

}  // namespace

Variables::Variables(const std::map<std::string, std::string>& values) {
    for (const auto& [name, value] : values) {
        const char* before = std::getenv(name.c_str());
        former_[name] = before == nullptr ? "" : before;
        set_variable(name, value);
    }
}

Variables::Variables(const std::string& name, const std::string& value)
    : Variables(std::map<std::string, std::string>{{name, value}}) {}

Variables::~Variables() {
    for (const auto& [name, value] : former_) set_variable(name, value);
}

KeyServer::KeyServer(const std::string& certificate)
    : process_({.command = command(certificate)}), none_(kUnset) {
    std::string port;
    const auto serves = eventually(60s, "the key server's port", [&] {
        port = process_.stdout_text();
        return port.ends_with('\n');
    });
    if (!serves) throw std::runtime_error("key_server.py: " + process_.stderr_text());
    port_ = std::stoi(port);
    std::ofstream(token_file()) << "web.identity.t0ken\n";
}

std::string KeyServer::url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
}

void KeyServer::set(const std::string& name, const std::string& value) const {
    http(port_, "GET", "/set?" + name + "=" + value);
}

void KeyServer::reset() const {
    http(port_, "GET", "/reset");
}

std::string KeyServer::seen() const {
    return http(port_, "GET", "/seen").body;
}

std::size_t KeyServer::asked() const {
    return nlohmann::json::parse(seen()).size();
}

std::map<std::string, std::string> KeyServer::web_identity() const {
    return {{"AWS_WEB_IDENTITY_TOKEN_FILE", token_file()},
            {"AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/relay"},
            {"AWS_ENDPOINT_URL_STS", url("")}};
}

std::map<std::string, std::string> KeyServer::container() const {
    return {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url("/container")}};
}

std::map<std::string, std::string> KeyServer::machine() const {
    return {{"AWS_EC2_METADATA_DISABLED", ""}, {"AWS_EC2_METADATA_SERVICE_ENDPOINT", url("")}};
}

}  // namespace outbox::test
