// A broker as small as one can be: it says each value into a file, again as often as it is told to.

#include "backend/broker.h"

#include <array>
#include <fstream>
#include <utility>

#include "core/url.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 1> kSchemes{"parrot"};
constexpr std::string_view kTimes = "parrot.times";

const spi::SinkCapabilities kCapabilities{"parrot", spi::Guarantee::kAtLeastOnce,
                                          /*fail_stop_order=*/true};

class ParrotSink final : public spi::Sink {
  public:
    ParrotSink(std::string path, int times) : path_(std::move(path)), times_(times) {}

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return kCapabilities;
    }
    Status check() override { return {}; }
    Result<std::string> destination() override { return path_; }
    [[nodiscard]] bool publish(const spi::Record& record) override {
        std::ofstream file(path_, std::ios::app);
        for (int i = 0; i < times_; ++i) file << record.key << ' ' << record.value << '\n';
        said_.push_back(record.token);
        return true;
    }
    void poll(std::chrono::milliseconds /*max_wait*/, spi::Completions& out) override {
        out.acknowledged.insert(out.acknowledged.end(), said_.begin(), said_.end());
        said_.clear();
    }

  private:
    std::string path_;
    int times_;
    std::vector<std::uint64_t> said_;
};

Result<std::unique_ptr<spi::Sink>> make(const Destination& destination) {
    int times = 1;
    for (const auto& [name, value] : destination.options) {
        if (name != kTimes) {
            return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                             name + ": the parrot has the option times alone"};
        }
        times = std::stoi(value);
    }
    const auto url = parse_url(destination.url);
    if (!url.ok()) return url.error();
    return std::unique_ptr<spi::Sink>(new ParrotSink(url->path, times));
}

std::string weakness(const Destination& /*destination*/) {
    return "parrots repeat what they hear; whisper";
}

}  // namespace

const Broker& parrot_broker() {
    static const Broker broker{
        .name = "parrot",
        .schemes = kSchemes,
        .urls = "parrot:///file",
        .capabilities = &kCapabilities,
        .options = "`times = 2` says everything twice",
        .example_option = "times = 2",
        .make = make,
        .weakness = weakness,
    };
    return broker;
}

}  // namespace outbox
