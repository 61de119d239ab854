#include <array>

#include "backend/bare.h"
#include "brokers/null/sink.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 1> kSchemes{"null"};

Result<std::unique_ptr<spi::Sink>> make(const Destination& destination) {
    if (Status bare = check_bare(destination, "null"); !bare.ok()) return bare.error();
    return std::unique_ptr<spi::Sink>(new null::NullSink);
}

}  // namespace

const Broker& null_broker() {
    static const Broker broker{.name = "null",
                               .schemes = kSchemes,
                               .urls = "null:",
                               .capabilities = &null::kCapabilities,
                               .any_topic = true,
                               .make = make};
    return broker;
}

}  // namespace outbox
