// A broker as small as one can be: it says each value into a file, again as often as it is told to.

#include "backend/broker.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "core/url.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 1> kSchemes{"parrot"};
constexpr std::array kOptions{
    BackendOption{.name = "times",
                  .type = OptionType::kInteger,
                  .fallback = "1",
                  .min = 1,
                  .max = 100,
                  .help = "how often it says everything"},
    BackendOption{.name = "watchword", .secret = true, .help = "that it says first of all"},
};
constexpr std::size_t kMostHeard = 1'000;

const spi::SinkCapabilities kCapabilities{"parrot", spi::Guarantee::kAtLeastOnce,
                                          /*fail_stop_order=*/true};

ErrorInfo cannot_say(const std::string& path, int error) {
    return {ErrorCode::kSinkUnavailable, Advice::kRetryDestination, std::to_string(error),
            "the parrot cannot say it into " + path + ": " + std::strerror(error)};
}

class ParrotSink final : public spi::Sink {
  public:
    ParrotSink(std::string path, std::size_t times, std::string watchword)
        : path_(std::move(path)), times_(times), watchword_(std::move(watchword)) {}

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return kCapabilities;
    }
    Status check() override {
        std::error_code ignored;
        const auto folder = std::filesystem::path(path_).parent_path();
        return std::filesystem::is_directory(folder, ignored) ? Status()
                                                              : cannot_say(path_, ENOENT);
    }
    Result<std::string> destination() override { return path_; }
    [[nodiscard]] bool publish(const spi::Record& record) override {
        if (heard_.size() >= kMostHeard) return false;
        heard_.push_back(record);  // whose views stay until `poll` has told the outcome
        return true;
    }
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override {
        if (heard_.empty()) {
            std::this_thread::sleep_for(max_wait);  // nothing can come meanwhile
            return;
        }
        const int error = say_all();
        for (const spi::Record& record : heard_) {
            if (error == 0) {
                out.acknowledged.push_back(record.token);
            } else {
                out.failed.push_back({record.token, cannot_say(path_, error)});
            }
        }
        heard_.clear();
    }

  private:
    // 0, or an error of which nobody can say what is in the file: all of it comes again.
    int say_all() {
        errno = 0;
        std::ofstream file(path_, std::ios::app);
        if (!watchword_.empty()) file << watchword_ << '\n';
        for (const spi::Record& record : heard_) {
            for (std::size_t i = 0; i < times_; ++i) {
                file << record.key << ' ' << record.value << '\n';
            }
        }
        file.close();
        if (file) return 0;
        return errno != 0 ? errno : EIO;
    }

    const std::string path_;
    const std::size_t times_;
    const std::string watchword_;
    std::vector<spi::Record> heard_;
};

Result<std::unique_ptr<spi::Sink>> make(const Destination& destination) {
    const auto url = parse_url(destination.url);
    if (!url.ok()) return url.error();
    const auto options =
        read_backend_options({"the parrot", "parrot.", kOptions}, url->query, destination.options);
    if (!options.ok()) return options.error();
    return std::unique_ptr<spi::Sink>(
        new ParrotSink(url->path, options->size("times"), options->text("watchword")));
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
        .options = kOptions,
        .example_option = "times = 2",
        .make = make,
        .weakness = weakness,
    };
    return broker;
}

}  // namespace outbox
