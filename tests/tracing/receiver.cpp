#include "tests/tracing/receiver.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> command(int port, const std::string& folder, const std::string& login) {
    const std::string root = OUTBOX_SOURCE_DIR;
    std::vector<std::string> words{
        root + "/script/clients", "python", "-B", root + "/tests/tracing/receiver.py",
        std::to_string(port),     folder};
    if (!login.empty()) words.insert(words.end(), {"--login", login});
    return words;
}

}  // namespace

SpanReceiver::SpanReceiver(const std::string& login)
    : port_(free_port()), process_({.command = command(port_, folder_.path().string(), login)}) {
    const auto ready = eventually(60s, "the receiver serves", [&] {
        return !process_.running() || process_.stdout_text() == "ready\n";
    });
    if (!ready || !process_.running()) {
        throw std::runtime_error("the receiver does not start: " + process_.stderr_text());
    }
}

std::string SpanReceiver::url(const std::string& login) const {
    return "http://" + login + "127.0.0.1:" + std::to_string(port_);
}

// Whole at once, as it is read at any time.
void SpanReceiver::set_mode(const std::string& mode) const {
    std::ofstream(folder_ / "new") << mode;
    std::filesystem::rename(folder_ / "new", folder_ / "mode");
}

std::vector<SeenSpan> SpanReceiver::spans() const {
    std::istringstream lines(read_file(folder_ / "spans"));
    std::vector<SeenSpan> seen;
    for (std::string line; std::getline(lines, line);) {
        const auto json = nlohmann::json::parse(line, nullptr, false);
        if (json.is_discarded()) break;  // it is being written
        seen.push_back({json["trace"], json["parent"], json["span"], json["name"], json["kind"],
                        json["start_us"], json["us"], json["status"], json["error"],
                        json["attributes"], json["resource"]});
    }
    return seen;
}

}  // namespace outbox::test
