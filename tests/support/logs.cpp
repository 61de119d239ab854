#include "tests/support/logs.h"

#include <map>
#include <mutex>

#include "tests/support/files.h"

namespace outbox::test {
namespace {

struct Log {
    std::string name;
    std::filesystem::path path;
};

struct Registry {
    std::mutex mutex;
    std::map<int, Log> logs;
    int last = 0;
};

// Never destroyed: servers unregister while the process ends.
Registry& registry() {
    static auto* const instance = new Registry;
    return *instance;
}

}  // namespace

int register_log(std::string name, std::filesystem::path path) {
    auto& all = registry();
    const std::lock_guard lock(all.mutex);
    all.logs.emplace(++all.last, Log{std::move(name), std::move(path)});
    return all.last;
}

void unregister_log(int registration) {
    auto& all = registry();
    const std::lock_guard lock(all.mutex);
    all.logs.erase(registration);
}

std::string log_tail(const std::filesystem::path& path, int lines) {
    const auto text = read_file(path);
    auto start = text.size();
    for (int line = 0; line <= lines && start != 0 && start != std::string::npos; ++line) {
        start = start == 0 ? std::string::npos : text.rfind('\n', start - 1);
    }
    return start == std::string::npos ? text : text.substr(start);
}

std::string all_log_tails() {
    auto& all = registry();
    const std::lock_guard lock(all.mutex);
    std::string result;
    for (const auto& [registration, log] : all.logs) {
        const auto tail = log_tail(log.path);
        if (!tail.empty()) result += "--- " + log.name + ", " + log.path.string() + '\n' + tail;
    }
    return result;
}

}  // namespace outbox::test
