#include "runtime/log.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "core/json_text.h"
#include "core/url.h"
#include "core/utf8.h"
#include "runtime/line_writer.h"

namespace outbox::runtime {
namespace {

std::string g_format = "logfmt";  // set by configure_logs, before threads start

constexpr std::array<std::string_view, 4> kLevelNames = {"debug", "info", "warn", "error"};
constexpr std::array kSpdlogLevels = {spdlog::level::debug, spdlog::level::info,
                                      spdlog::level::warn, spdlog::level::err};

std::string quote(std::string_view text) {
    std::string quoted;
    append_json_string(to_utf8(text), quoted);
    return printable_json(quoted);  // a log is read on terminals
}

bool is_plain(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return c > ' ' && c < 127 && c != '"' && c != '=' && c != '\\';
    });
}

std::string now_text() {
    const auto now = std::chrono::system_clock::now();
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() %
        1000;
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                       parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                       ms);
}

// A reader of the log that hangs must not stop what is logged.
constexpr std::chrono::milliseconds kPatience{1'000};

std::string lines_left_out(std::uint64_t lines) {
    return format_log_line(g_format, now_text(), LogLevel::kWarn, "log_lines_left_out",
                           {{"lines", std::to_string(lines)}}) +
           "\n";
}

// Lines come as they are to be written.
class StderrSink final : public spdlog::sinks::sink {
  public:
    void log(const spdlog::details::log_msg& message) override {
        std::string line(message.payload.data(), message.payload.size());
        line += '\n';
        const core::Lock lock(mutex_);
        writer_.write(line);
    }
    void flush() override {}
    void set_pattern(const std::string&) override {}
    void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

  private:
    core::Mutex mutex_;
    LineWriter writer_ OUTBOX_GUARDED_BY(mutex_){STDERR_FILENO, kPatience, lines_left_out};
};

spdlog::logger& logger() {
    static const auto instance = [] {
        return std::make_unique<spdlog::logger>("outbox", std::make_shared<StderrSink>());
    }();
    return *instance;
}

}  // namespace

void configure_logs(std::string_view level, std::string_view format) {
    g_format = std::string(format);
    const auto found = std::find(kLevelNames.begin(), kLevelNames.end(), level);
    if (found == kLevelNames.end()) return;
    logger().set_level(kSpdlogLevels.at(static_cast<std::size_t>(found - kLevelNames.begin())));
}

std::string format_log_line(std::string_view format, std::string_view time, LogLevel level,
                            std::string_view event, const LogFields& fields) {
    const bool json = format == "json";
    std::string line(json ? "{" : "");
    const auto add = [&](std::string_view name, std::string_view value) {
        if (line.size() > 1) line += json ? "," : " ";
        const std::string safe = redact(value);
        line += json ? quote(name) + ":" : std::string(name) + "=";
        line += json || !is_plain(safe) ? quote(safe) : safe;
    };
    add("time", time);
    add("level", kLevelNames.at(static_cast<std::size_t>(level)));
    add("event", event);
    for (const auto& [name, value] : fields) add(name, value);
    return line + (json ? "}" : "");
}

void log(LogLevel level, std::string_view event, const LogFields& fields) {
    const auto spdlog_level = kSpdlogLevels.at(static_cast<std::size_t>(level));
    if (!logger().should_log(spdlog_level)) return;
    logger().log(spdlog_level, spdlog::string_view_t(
                                   format_log_line(g_format, now_text(), level, event, fields)));
}

bool OncePerChange::changed(const std::string& name, const std::string& value) {
    const core::Lock lock(mutex_);
    const auto [entry, inserted] = values_.try_emplace(name, value);
    if (inserted) return true;
    if (entry->second == value) return false;
    entry->second = value;
    return true;
}

}  // namespace outbox::runtime
