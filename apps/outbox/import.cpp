// Other relays' configuration as ours.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "commands.h"
#include "core/redact.h"
#include "core/utf8.h"
#include "print.h"
#include "runtime/debezium_import.h"
#include "runtime/exit_codes.h"
#include "runtime/options.h"

namespace outbox::app {

int run_import_debezium(const runtime::Invocation& invocation) {
    if (invocation.positionals.size() != 1) {
        return report(runtime::config_error(
            "import debezium",
            "which file? Give one: outbox import debezium application.properties"));
    }
    const std::string& path = invocation.positionals.front();
    if (std::error_code error; std::filesystem::is_directory(path, error)) {
        return report(runtime::config_error(path, "cannot be read: it is a folder"));
    }
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) {
        return report(
            runtime::config_error(path, std::string("cannot be read: ") + std::strerror(errno)));
    }
    const auto made = runtime::import_debezium(text.str());
    if (!made.ok()) {
        ErrorInfo error = made.error();
        error.message = path + ": " + error.message;
        return report(error);
    }
    if (invocation.options.flag("json")) {
        nlohmann::ordered_json left_out = nlohmann::ordered_json::array();
        for (const auto& left : made->left_out) {
            left_out.push_back(
                {{"line", left.line}, {"name", redact(left.name)}, {"why", redact(left.why)}});
        }
        print_json({{"toml", made->toml}, {"left_out", std::move(left_out)}});
        return runtime::kExitOk;
    }
    for (const auto& left : made->left_out) {
        std::cerr << to_printable(redact(path + ":" + std::to_string(left.line) + ": " + left.name +
                                         ": " + left.why))
                  << "\n";
    }
    std::cout << made->toml;
    return runtime::kExitOk;
}

}  // namespace outbox::app
