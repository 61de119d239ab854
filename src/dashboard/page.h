#pragma once

#include <span>
#include <string_view>

namespace outbox::dashboard {

/// A file of the page, which the build put into the library.
struct PageFile {
    std::string_view path;  ///< "/app.js"
    std::string_view content_type;
    std::string_view text;
};

[[nodiscard]] std::span<const PageFile> page_files();

}  // namespace outbox::dashboard
