#include "order_service.h"

#include <iostream>
#include <string_view>

#include <outbox/error.h>

namespace orders {

namespace {

constexpr std::string_view kOrders = "/api/orders";
constexpr std::string_view kCancel = "/cancel";

HttpResponse problem(int status, const std::string& text) {
    return {status, Refusal{text, {}}.json()};
}

HttpResponse only(const std::string& method) {
    HttpResponse response = problem(405, "this address takes " + method + " only");
    response.headers.emplace_back("Allow", method);
    return response;
}

// A page of another origin may send text and forms without asking first, but not JSON.
bool is_json(const HttpRequest& request) {
    return request.content_type == "application/json" ||
           (request.content_type.empty() && !request.from_page);
}

}  // namespace

void OrderService::prepare() {
    if (prepared_) return;
    const std::lock_guard lock(prepare_mutex_);
    if (prepared_) return;
    store_.prepare();
    prepared_ = true;
}

HttpResponse OrderService::handle(const HttpRequest& request) {
    try {
        return route(request);
    } catch (const outbox::Error& error) {
        std::cerr << "order-service: " << request.method << " " << request.path << ": "
                  << error.what() << std::endl;
        if (error.advice() == outbox::Advice::kStop ||
            error.advice() == outbox::Advice::kDeadLetter)
            return problem(500, "internal error; see the log of the service");
        HttpResponse response = problem(503, "the database is away; try again later");
        response.headers.emplace_back("Retry-After", "1");
        return response;
    }
}

HttpResponse OrderService::route(const HttpRequest& request) {
    const std::string_view path = request.path;
    const bool get = request.method == "GET";
    if (path == kOrders) return request.method == "POST" ? create_order(request) : only("POST");
    if (path == "/health") return get ? show_health() : only("GET");
    if (path == "/api/outbox/pending") return get ? show_pending() : only("GET");
    if (path.starts_with(kOrders) && path.size() > kOrders.size() + 1 &&
        path[kOrders.size()] == '/') {
        const std::string_view id = path.substr(kOrders.size() + 1);
        if (!id.ends_with(kCancel)) return get ? show_order(std::string(id)) : only("GET");
        if (request.method != "POST") return only("POST");
        return cancel_order(std::string(id.substr(0, id.size() - kCancel.size())));
    }
    return problem(404, "no such address");
}

HttpResponse OrderService::create_order(const HttpRequest& request) {
    if (!is_json(request)) return problem(415, "an order is sent as application/json");
    const auto parsed = parse_new_order(request.body);
    if (const auto* refusal = std::get_if<Refusal>(&parsed)) return {400, refusal->json()};
    prepare();
    const auto& [details, request_id] = std::get<OrderRequest>(parsed);
    const auto created = [](const Order& order) {
        return outbox::IdempotentAnswer{
            .status = 201,
            .headers = {{"Location", std::string(kOrders) + "/" + order.id}},
            .body = order_json(order)};
    };
    // A real service takes the scope from who is logged in; this one has no login.
    return middleware_.answer(request, details.user_id, request_id,
                              [&](const outbox::IdempotentRequest& asked) {
                                  return store_.create(details, asked, created);
                              });
}

HttpResponse OrderService::show_order(const std::string& id) {
    prepare();
    const auto order = is_uuid(id) ? store_.find(id) : std::nullopt;
    if (!order) return problem(404, "no such order");
    return {200, order_json(*order)};
}

/// May be sent again: an order that is cancelled stays so.
HttpResponse OrderService::cancel_order(const std::string& id) {
    prepare();
    const Settlement settlement = store_.cancel(id);
    if (settlement.status == kConfirmed)
        return problem(409, "the order is confirmed and cannot be cancelled any more");
    return show_order(id);
}

HttpResponse OrderService::show_pending() {
    prepare();
    std::string list;
    for (const std::string& event : store_.pending(kMaxPendingShown))
        list += (list.empty() ? "" : ",\n ") + event;
    return {200, "[" + list + "]\n"};
}

HttpResponse OrderService::show_health() {
    try {
        prepare();
        const std::string pending = std::to_string(store_.pending_count());
        return {200, R"({"status":"healthy","pending_outbox_events":)" + pending + "}\n"};
    } catch (const outbox::Error& error) {
        std::cerr << "order-service: health: " << error.what() << std::endl;
        return {503, R"({"status":"unhealthy","error":"the database is away"})"
                     "\n"};
    }
}

}  // namespace orders
