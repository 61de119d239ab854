#include <filesystem>
#include <fstream>
#include <iostream>

#include "runtime/reference.h"

// Writes the reference pages and the example file into the source folder that is given.
int main(int count, char** arguments) {
    namespace fs = std::filesystem;
    if (count != 2) {
        std::cerr << "usage: write_reference SOURCE_FOLDER\n";
        return 2;
    }
    const fs::path root = arguments[1];
    const fs::path folder = root / "docs" / "reference";
    fs::create_directories(folder);
    const auto write = [](const fs::path& path, const std::string& text) {
        std::ofstream(path, std::ios::trunc) << text;
        std::cout << path.string() << "\n";
    };
    write(folder / "options.md", outbox::runtime::options_page());
    write(folder / "errors.md", outbox::runtime::errors_page());
    write(folder / "metrics.md", outbox::runtime::metrics_page());
    write(root / "outbox.example.toml", outbox::runtime::example_file());
    return 0;
}
