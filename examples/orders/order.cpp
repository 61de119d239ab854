#include "order.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "json_fields.h"

namespace orders {

namespace {

constexpr std::size_t kMaxIdBytes = 255;
constexpr std::int64_t kMaxQuantity = 1'000'000;

/// Reads the fields one by one and notes what is wrong with each.
class FieldChecker {
  public:
    using Field = JsonField;
    explicit FieldChecker(const std::map<std::string, Field>& fields) : fields_(fields) {}
    std::map<std::string, std::string> faults;

    std::string id(const std::string& name) {
        const Field* field = find(name);
        if (field == nullptr) return {};
        if (field->type != Field::Type::kText || field->text.empty() ||
            field->text.size() > kMaxIdBytes || has_control_character(field->text)) {
            faults[name] = "must be a text of 1 to 255 bytes without control characters";
            return {};
        }
        return field->text;
    }

    std::int64_t quantity(const std::string& name) {
        const Field* field = find(name);
        if (field == nullptr) return 0;
        // 7 digits hold every number that is allowed, and cannot overflow.
        if (field->type == Field::Type::kInteger && field->text.size() <= 7) {
            const std::int64_t value = std::stoll(field->text);
            if (value >= 1 && value <= kMaxQuantity) return value;
        }
        faults[name] = "must be a whole number from 1 to 1000000";
        return 0;
    }

    Money money(const std::string& name) {
        const Field* field = find(name);
        if (field == nullptr) return {};
        const auto value = field->is_number() ? Money::parse(field->text) : std::nullopt;
        if (!value)
            faults[name] = "must be a number from 0 to 9999999999.99 with at most two decimals";
        return value.value_or(Money{});
    }

    std::string currency(const std::string& name) {
        const auto found = fields_.find(name);
        if (found == fields_.end()) return {};
        const auto upper = [](char c) { return c >= 'A' && c <= 'Z'; };
        const auto& [type, text] = found->second;
        if (type == Field::Type::kText && text.size() == 3 &&
            std::all_of(text.begin(), text.end(), upper))
            return text;
        faults[name] = "must be three capital letters, such as \"EUR\"";
        return {};
    }

  private:
    const Field* find(const std::string& name) {
        const auto found = fields_.find(name);
        if (found != fields_.end()) return &found->second;
        faults[name] = "is missing";
        return nullptr;
    }
    static bool has_control_character(std::string_view text) {
        for (const char c : text)
            if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return true;
        return false;
    }

    const std::map<std::string, Field>& fields_;
};

std::string details_json(const NewOrder& details) {
    return R"("user_id":)" + json_string(details.user_id) + R"(,"product_id":)" +
           json_string(details.product_id) + R"(,"quantity":)" + std::to_string(details.quantity) +
           R"(,"total_amount":)" + details.total_amount.text() +
           (details.currency.empty() ? "" : R"(,"currency":)" + json_string(details.currency));
}

}  // namespace

std::string Refusal::json() const {
    std::string out = "{\"error\":" + json_string(error);
    if (!fields.empty()) out += ",\"fields\":" + nlohmann::json(fields).dump();
    return out + "}\n";
}

std::variant<OrderRequest, Refusal> parse_new_order(std::string_view body) {
    const JsonFields read = read_json_fields(body);
    if (!read.problem.empty()) return Refusal{read.problem, {}};
    FieldChecker checker(read.fields);
    OrderRequest out;
    out.order.user_id = checker.id("user_id");
    out.order.product_id = checker.id("product_id");
    out.order.quantity = checker.quantity("quantity");
    out.order.total_amount = checker.money("total_amount");
    out.order.currency = checker.currency("currency");
    if (read.fields.contains("request_id")) out.request_id = checker.id("request_id");
    if (!checker.faults.empty()) return Refusal{"validation failed", checker.faults};
    return out;
}

std::string order_json(const Order& order) {
    return R"({"id":)" + json_string(order.id) + "," + details_json(order.details) +
           R"(,"status":)" + json_string(order.status) +
           (order.reason.empty() ? "" : R"(,"reason":)" + json_string(order.reason)) +
           R"(,"created_at":)" + json_string(order.created_at) + "}\n";
}

std::string order_created_json(const Order& order) {
    return R"({"order_id":)" + json_string(order.id) + "," + details_json(order.details) +
           R"(,"timestamp":)" + json_string(order.created_at) + "}";
}

bool is_uuid(std::string_view text) {
    constexpr std::string_view kForm = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    if (text.size() != kForm.size()) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
        if (kForm[i] == 'x' ? !hex : text[i] != '-') return false;
    }
    return true;
}

std::string now_text() {
    using namespace std::chrono;
    const auto now = floor<microseconds>(system_clock::now());
    const std::time_t seconds = system_clock::to_time_t(floor<std::chrono::seconds>(now));
    const auto micros = (now.time_since_epoch() % std::chrono::seconds(1)).count();
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    std::array<char, 32> date{};
    std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &utc);
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%s.%06dZ", date.data(), static_cast<int>(micros));
    return text.data();
}

}  // namespace orders
