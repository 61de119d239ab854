#include "dashboard/site.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/url.h"
#include "dashboard/page.h"

namespace outbox::dashboard {
namespace {

using nlohmann::ordered_json;

// The page runs no script but its own files, speaks to nobody else, and is shown in no frame.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

admin::HttpResponse guarded(admin::HttpResponse response) {
    response.headers.emplace_back("Content-Security-Policy", kPolicy);
    response.headers.emplace_back("Referrer-Policy", "no-referrer");
    response.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
    response.headers.emplace_back("X-Frame-Options", "DENY");
    return response;
}

admin::HttpResponse json_response(unsigned status, const ordered_json& body) {
    return guarded({status,
                    "application/json",
                    body.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n",
                    {}});
}

admin::HttpResponse refused(const Refusal& refusal) {
    return json_response(refusal.status, {{"error", refusal.code}, {"message", refusal.text}});
}

// Up to the end of a character.
std::size_t place_to_cut(const std::string& text, std::size_t bytes) {
    while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) --bytes;
    return bytes;
}

// The payload of a letter is what a page is opened for.
void cut_texts(ordered_json& value, std::size_t limit = kMaxTextBytes) {
    if (value.is_string()) {
        auto& text = value.get_ref<std::string&>();
        if (text.size() <= limit) return;
        const std::string size = std::to_string(text.size());
        text.resize(place_to_cut(text, limit));
        text += "… (cut: " + size + " bytes in all)";
    }
    if (!value.is_structured()) return;
    for (auto& part : value.items()) {
        cut_texts(part.value(), part.key() == "payload" ? kMaxPayloadBytes : kMaxTextBytes);
    }
}

unsigned status_of(const ErrorInfo& error) {
    switch (error.code) {
        case ErrorCode::kConfigInvalid:
        case ErrorCode::kInvalidEvent:
            return 400;
        case ErrorCode::kNoRights:
            return 403;
        case ErrorCode::kConflict:
            return 409;
        case ErrorCode::kUnsupported:
            return 501;
        default:
            return 503;  // of the database
    }
}

std::map<std::string, std::string> values_of(std::string_view query) {
    std::map<std::string, std::string> values;
    while (!query.empty()) {
        const std::string_view part = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(part.size() + 1, query.size()));
        const auto equals = part.find('=');
        if (equals == std::string_view::npos) continue;
        std::string value(part.substr(equals + 1));
        for (char& c : value) c = c == '+' ? ' ' : c;
        values[percent_decode(std::string(part.substr(0, equals)))] = percent_decode(value);
    }
    return values;
}

const PageFile* find_page_file(std::string_view path) {
    if (path == "/") path = "/index.html";
    for (const PageFile& file : page_files()) {
        if (file.path == path) return &file;
    }
    return nullptr;
}

admin::HttpResponse ask(const Desk& desk, const admin::HttpRequest& request) {
    const auto answer = desk({.path = request.path,
                              .values = values_of(request.query),
                              .changes = request.method == "POST",
                              .body = request.body});
    if (!answer.ok()) {
        const ErrorInfo& error = answer.error();
        ordered_json body{{"error", error_code_name(error.code)},
                          {"message", redact(describe(error))}};
        cut_texts(body);
        return json_response(status_of(error), body);
    }
    if (answer->is_null()) {
        return refused({404, "not_found", "it is not there (any more)"});
    }
    ordered_json body = *answer;
    cut_texts(body);
    return json_response(200, body);
}

// What needs no database.
std::optional<admin::HttpResponse> answer_at_once(const GateConfig& gate,
                                                  const admin::HttpRequest& request,
                                                  std::chrono::milliseconds busy) {
    const bool file_wanted = !request.path.starts_with("/api/");
    const bool access_wanted = request.path == "/api/access";
    if (!file_wanted && !access_wanted && busy < kMostBusy) return std::nullopt;
    if (const auto foreign = refuse_foreign(gate, request)) return refused(*foreign);
    if (access_wanted) {
        const bool changes = gate.token != nullptr;
        return json_response(
            200, {{"changes", changes}, {"reading_needs_token", changes && !gate.loopback}});
    }
    if (!file_wanted) {
        return refused({503, "busy",
                        "a database has not answered the question before this one for over " +
                            std::to_string(kMostBusy.count()) + " s; ask again later"});
    }
    const PageFile* file = find_page_file(request.path);
    if (file == nullptr) {
        return refused({404, "not_found", "there is no such page; the dashboard is at /"});
    }
    if (request.method != "GET") {
        return refused({405, "method", "only GET and HEAD are served here"});
    }
    return guarded({200, std::string(file->content_type), std::string(file->text), {}});
}

admin::HttpResponse answer_of_desk(const GateConfig& gate, const Desk& desk,
                                   const admin::HttpRequest& request) {
    if (const auto refusal = refuse(gate, request)) return refused(*refusal);
    // Whether a token is right, and nothing else.
    if (request.path == "/api/token") {
        const auto missing = refuse_without_token(gate, request);
        return missing ? refused(*missing) : json_response(200, {{"token", "right"}});
    }
    return ask(desk, request);
}

}  // namespace

admin::AdminServer::Site make_site(GateConfig gate, Desk desk) {
    return {
        .at_once =
            [gate](const admin::HttpRequest& request, std::chrono::milliseconds busy) {
                return answer_at_once(gate, request, busy);
            },
        .ask =
            [gate = std::move(gate), desk = std::move(desk)](const admin::HttpRequest& request) {
                return answer_of_desk(gate, desk, request);
            }};
}

}  // namespace outbox::dashboard
