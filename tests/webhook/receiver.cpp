#include "tests/webhook/receiver.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> command(const Receiver::Options& options, int port,
                                 const std::string& log) {
    const std::string root = OUTBOX_SOURCE_DIR;
    const std::string script = options.http2 ? "receiver_http2.py" : "receiver.py";
    std::vector<std::string> words{
        root + "/script/clients", "python", "-B", root + "/tests/webhook/" + script, options.host,
        std::to_string(port),     log};
    if (!options.tls.empty()) words.insert(words.end(), {"--tls", options.tls});
    words.insert(words.end(), options.keys.begin(), options.keys.end());
    return words;
}

}  // namespace

Receiver::Receiver(const Options& options)
    : port_(options.port != 0 ? options.port : free_port()),
      process_({.command = command(options, port_, (folder_ / "requests").string())}) {
    const auto ready = eventually(60s, "the receiver serves", [&] {
        return !process_.running() || process_.stdout_text() == "ready\n";
    });
    if (!ready || !process_.running()) {
        throw std::runtime_error("the receiver does not start: " + process_.stderr_text());
    }
}

std::size_t Receiver::count() const {
    const std::string lines = read_file(folder_ / "requests");
    return static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n'));
}

std::vector<nlohmann::json> Receiver::requests() const {
    std::istringstream lines(read_file(folder_ / "requests"));
    std::vector<nlohmann::json> requests;
    for (std::string line; std::getline(lines, line) && !lines.eof();) {
        requests.push_back(nlohmann::json::parse(line));
    }
    return requests;
}

std::vector<nlohmann::json> Receiver::wait_for(std::size_t count) const {
    EXPECT_TRUE(eventually(60s, "requests have come", [&] { return requests().size() >= count; }));
    return requests();
}

}  // namespace outbox::test
