#pragma once

#include <memory>
#include <string>
#include <utility>

#include <outbox/result.h>

#include "backend/broker.h"

/// The functions of a descriptor whose folder makes a configuration of a destination, as
/// `Result<Config> kConfigure(const Destination&)`. What is wrong with the settings is their error.
namespace outbox::configured {

template <auto kConfigure, typename Sink>
Result<std::unique_ptr<spi::Sink>> make(const Destination& destination) {
    auto config = kConfigure(destination);
    if (!config.ok()) return config.error();
    return std::unique_ptr<spi::Sink>(new Sink(std::move(*config)));
}

template <auto kConfigure, auto kCheck>
Status check(const Destination& destination) {
    const auto config = kConfigure(destination);
    return config.ok() ? kCheck(*config) : config.status();
}

template <auto kConfigure, auto kDescribe>
Result<std::string> describe(const Destination& destination) {
    const auto config = kConfigure(destination);
    if (!config.ok()) return config.error();
    return kDescribe(*config);
}

/// "" where the settings are wrong, which others say.
template <auto kConfigure, auto kWeakness>
std::string weakness(const Destination& destination) {
    const auto config = kConfigure(destination);
    return config.ok() ? kWeakness(*config) : "";
}

/// Nothing where the settings are wrong, which others say.
template <auto kConfigure, auto kUse>
TlsUse tls(const Destination& destination) {
    const auto config = kConfigure(destination);
    return config.ok() ? kUse(*config) : TlsUse();
}

}  // namespace outbox::configured
