#include "schema/uri.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace outbox::schema {
namespace {

struct Parts {
    std::string_view scheme;     // with its colon
    std::string_view authority;  // with its slashes
    std::string_view path;
    std::string_view query;     // with its mark
    std::string_view fragment;  // with its mark
};

std::string_view cut_from(std::string_view& text, std::size_t at) {
    at = std::min(at, text.size());
    const std::string_view rest = text.substr(at);
    text = text.substr(0, at);
    return rest;
}

Parts split(std::string_view text) {
    Parts parts;
    parts.fragment = cut_from(text, text.find('#'));
    parts.query = cut_from(text, text.find('?'));
    const std::size_t colon = text.find_first_of(":/");
    if (colon != std::string_view::npos && colon > 0 && text[colon] == ':' &&
        std::isalpha(static_cast<unsigned char>(text.front())) != 0) {
        parts.scheme = text.substr(0, colon + 1);
        text.remove_prefix(colon + 1);
    }
    if (text.starts_with("//")) {
        const std::size_t end = std::min(text.find('/', 2), text.size());
        parts.authority = text.substr(0, end);
        text.remove_prefix(end);
    }
    parts.path = text;
    return parts;
}

// Section 5.2.4, of a path that begins with a slash or of one that does not.
std::string without_dots(std::string_view path) {
    std::string out;
    while (!path.empty()) {
        const std::size_t next = path.find('/', 1);
        const std::string_view segment = path.substr(0, next);
        path.remove_prefix(segment.size());
        const std::string_view name = segment.substr(segment.starts_with('/') ? 1 : 0);
        if (name == "." || name == "..") {
            if (name == "..") out.resize(std::min(out.rfind('/'), out.size()));
            if (path.empty()) out += '/';
        } else {
            out += segment;
        }
    }
    return out;
}

std::string joined(std::string_view a, std::string_view b, std::string_view c, std::string_view d,
                   std::string_view e) {
    std::string out;
    for (const std::string_view part : {a, b, c, d, e}) out += part;
    return out;
}

}  // namespace

std::string resolve_uri(std::string_view base, std::string_view reference) {
    const Parts from = split(base);
    const Parts to = split(reference);
    if (!to.scheme.empty()) return std::string(reference);
    if (!to.authority.empty()) {
        return joined(from.scheme, to.authority, without_dots(to.path), to.query, to.fragment);
    }
    if (to.path.empty()) {
        return joined(from.scheme, from.authority, from.path,
                      to.query.empty() ? from.query : to.query, to.fragment);
    }
    std::string path(to.path);
    if (!path.starts_with('/')) {
        const std::size_t slash = from.path.rfind('/');
        if (slash != std::string_view::npos) {
            path = std::string(from.path.substr(0, slash + 1)) + path;
        } else if (!from.authority.empty()) {
            path = "/" + path;
        }
    }
    return joined(from.scheme, from.authority, without_dots(path), to.query, to.fragment);
}

}  // namespace outbox::schema
