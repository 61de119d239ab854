#include "tests/brokers/sdk_reader.h"

#include <chrono>
#include <stdexcept>

#include "core/base64.h"
#include "tests/support/process.h"

namespace outbox::test {

nlohmann::json read_by_sdk(const std::string& binding, const WireMessage& message) {
    std::string value;
    append_base64(message.value, value);
    nlohmann::json line{{"headers", message.headers},
                        {"key", nullptr},
                        {"value", value},
                        {"content_type", message.content_type}};
    if (message.key) line["key"] = *message.key;
    const std::string root = OUTBOX_SOURCE_DIR;
    const Finished done = run({.command = {root + "/script/clients", "python", "-B",
                                           root + "/tests/brokers/cloud_events.py", binding},
                               .input = line.dump() + "\n"},
                              std::chrono::seconds(120));
    if (done.status.code != 0) throw std::runtime_error(done.err);
    return nlohmann::json::parse(done.out);
}

}  // namespace outbox::test
