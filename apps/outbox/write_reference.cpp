#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "backend/backends.h"
#include "runtime/completions.h"
#include "runtime/man_page.h"
#include "runtime/reference.h"

// Writes the reference pages, the example file, the man page and shells' completions into the
// source folder that is given.
int main(int count, char** arguments) {
    namespace fs = std::filesystem;
    if (count != 2) {
        std::cerr << "usage: write_reference SOURCE_FOLDER\n";
        return 2;
    }
    const fs::path root = arguments[1];
    const fs::path folder = root / "docs" / "reference";
    const fs::path packaging = root / "packaging";
    const auto write = [](const fs::path& path, const std::string& text) {
        fs::create_directories(path.parent_path());
        std::ofstream(path, std::ios::trunc) << text;
        std::cout << path.string() << "\n";
    };
    write(folder / "options.md", outbox::runtime::options_page());
    write(folder / "errors.md", outbox::runtime::errors_page());
    write(folder / "metrics.md", outbox::runtime::metrics_page());
    write(root / "outbox.example.toml", outbox::runtime::example_file());
    for (const outbox::Broker* broker : outbox::brokers()) {
        const fs::path path = root / "docs" / "brokers" / (std::string(broker->name) + ".md");
        if (broker->options.empty() || !fs::exists(path)) continue;
        std::stringstream page;
        page << std::ifstream(path).rdbuf();
        const std::string text = outbox::runtime::with_broker_options(*broker, page.str());
        if (text.empty()) {
            std::cerr << path.string() << " has no place for the table of options\n";
            return 1;
        }
        write(path, text);
    }
    write(packaging / "man" / "outbox.1", outbox::runtime::man_page());
    write(packaging / "completions" / "outbox.bash", outbox::runtime::bash_completion());
    write(packaging / "completions" / "outbox.fish", outbox::runtime::fish_completion());
    write(packaging / "completions" / "outbox.zsh", outbox::runtime::zsh_completion());
    return 0;
}
