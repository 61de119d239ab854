#include <array>

#include "backend/bare.h"
#include "brokers/stdout/sink.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 1> kSchemes{"stdout"};

Result<std::unique_ptr<spi::Sink>> make(const Destination& destination) {
    if (Status bare = check_bare(destination, "stdout"); !bare.ok()) return bare.error();
    return std::unique_ptr<spi::Sink>(new stdout_::StdoutSink);
}

}  // namespace

const Broker& stdout_broker() {
    static const Broker broker{.name = "stdout",
                               .schemes = kSchemes,
                               .urls = "stdout:",
                               .capabilities = &stdout_::kCapabilities,
                               .any_topic = true,
                               .make = make};
    return broker;
}

}  // namespace outbox
