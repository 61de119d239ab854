# cmake -DROOT=src/dashboard/page -DOUT=page_files.cpp -P embed_page.cmake
# Writes the files of the dashboard's page into a C++ table, sorted by name.

set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")
file(GLOB files "${ROOT}/*.html" "${ROOT}/*.css" "${ROOT}/*.js" "${ROOT}/*.svg")
set(rows "")
foreach(file IN LISTS files)
    file(READ "${file}" text)
    get_filename_component(name "${file}" NAME)
    get_filename_component(extension "${file}" LAST_EXT)
    string(SUBSTRING "${extension}" 1 -1 extension)
    # What a compiler has to take in one literal is 65,536 bytes.
    string(LENGTH "${text}" length)
    if(length GREATER 60000)
        message(FATAL_ERROR "${name} is too large: divide it")
    endif()
    string(APPEND rows "    {\"/${name}\", \"${type_${extension}}\",\n     R\"outboxpage(${text})outboxpage\"},\n")
endforeach()
file(WRITE "${OUT}.new" "// Made by cmake/embed_page.cmake.
#include \"dashboard/page.h\"

namespace outbox::dashboard {
namespace {
constexpr PageFile kFiles[] = {
${rows}};
}  // namespace
std::span<const PageFile> page_files() { return kFiles; }
}  // namespace outbox::dashboard
")
file(RENAME "${OUT}.new" "${OUT}")
