#include "admin/pages.h"

#include <nlohmann/json.hpp>

#include "core/url.h"

namespace outbox::admin {
namespace {

HttpResponse json_page(unsigned status, const nlohmann::ordered_json& body) {
    return {status, "application/json",
            body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

}  // namespace

HttpResponse live_page(const HealthReport& report) {
    const bool live = report.loop_age_us < kMaxLoopAgeUs;
    return json_page(live ? 200 : 503, {{"status", live ? "live" : "stuck"},
                                        {"loop_age_s", report.loop_age_us / 1'000'000}});
}

HttpResponse ready_page(const HealthReport& report, bool show_error) {
    nlohmann::ordered_json body{{"status", report.database ? "ready" : "not ready"},
                                {"database", report.database},
                                {"leading", report.leading},
                                {"epoch", report.epoch},
                                {"open_circuits", report.open_circuits}};
    if (show_error && !report.database_error.empty()) body["error"] = redact(report.database_error);
    return json_page(report.database ? 200 : 503, body);
}

}  // namespace outbox::admin
