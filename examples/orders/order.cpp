#include "order.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

namespace orders {

namespace {

constexpr std::size_t kMaxIdBytes = 255;
constexpr std::int64_t kMaxQuantity = 1'000'000;

/// One field of the body, with a number's text as it was written.
struct Field {
    enum class Type : std::uint8_t { kText, kInteger, kDecimal, kOther };
    Type type = Type::kOther;
    std::string text;
};

/// Collects the fields of the outermost object. A parser of events and not a document, because
/// a document keeps numbers as binary fractions and lets the last of two equal names win.
class BodyReader : public nlohmann::json_sax<nlohmann::json> {
  public:
    std::map<std::string, Field> fields;
    std::string problem;  // why the text is not an object with distinct names

    bool null() override { return add({Field::Type::kOther, "null"}); }
    bool boolean(bool) override { return add({Field::Type::kOther, "boolean"}); }
    bool number_integer(number_integer_t value) override {
        return add({Field::Type::kInteger, std::to_string(value)});
    }
    bool number_unsigned(number_unsigned_t value) override {
        return add({Field::Type::kInteger, std::to_string(value)});
    }
    bool number_float(number_float_t, const string_t& written) override {
        return add({Field::Type::kDecimal, written});
    }
    bool string(string_t& value) override { return add({Field::Type::kText, std::move(value)}); }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override { return start(true); }
    bool start_array(std::size_t) override { return start(false); }
    bool end_object() override { return end(); }
    bool end_array() override { return end(); }
    bool key(string_t& name) override {
        if (depth_ != 1) return true;
        name_ = std::move(name);
        if (!fields.contains(name_)) return true;
        problem = "the field \"" + name_ + "\" is given twice";
        return false;
    }
    bool parse_error(std::size_t position, const std::string&,
                     const nlohmann::json::exception&) override {
        problem =
            "invalid JSON at byte " + std::to_string(position) + "; expected one UTF-8 JSON object";
        return false;
    }

  private:
    bool add(Field field) {
        if (depth_ == 0) return not_an_object();
        if (depth_ == 1) fields[name_] = std::move(field);
        return true;
    }
    bool start(bool object) {
        if (depth_ == 0 && !object) return not_an_object();
        if (depth_ == 1) fields[name_] = {};
        ++depth_;
        return true;
    }
    bool end() {
        --depth_;
        return true;
    }
    bool not_an_object() {
        problem = "the body must be a JSON object";
        return false;
    }

    std::string name_;
    std::size_t depth_ = 0;
};

/// Reads the fields one by one and notes what is wrong with each.
class FieldChecker {
  public:
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
        const bool number =
            field->type == Field::Type::kInteger || field->type == Field::Type::kDecimal;
        const auto value = number ? Money::parse(field->text) : std::nullopt;
        if (!value)
            faults[name] = "must be a number from 0 to 9999999999.99 with at most two decimals";
        return value.value_or(Money{});
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
           R"(,"total_amount":)" + details.total_amount.text();
}

}  // namespace

std::string Refusal::json() const {
    std::string out = "{\"error\":" + json_string(error);
    if (!fields.empty()) out += ",\"fields\":" + nlohmann::json(fields).dump();
    return out + "}\n";
}

std::variant<OrderRequest, Refusal> parse_new_order(std::string_view body) {
    BodyReader reader;
    if (!nlohmann::json::sax_parse(body, &reader)) return Refusal{reader.problem, {}};
    FieldChecker checker(reader.fields);
    OrderRequest out;
    out.order.user_id = checker.id("user_id");
    out.order.product_id = checker.id("product_id");
    out.order.quantity = checker.quantity("quantity");
    out.order.total_amount = checker.money("total_amount");
    if (reader.fields.contains("request_id")) out.request_id = checker.id("request_id");
    if (!checker.faults.empty()) return Refusal{"validation failed", checker.faults};
    return out;
}

std::string order_json(const Order& order) {
    return R"({"id":)" + json_string(order.id) + "," + details_json(order.details) +
           R"(,"status":)" + json_string(order.status) + R"(,"created_at":)" +
           json_string(order.created_at) + "}\n";
}

std::string order_created_json(const Order& order) {
    return R"({"order_id":)" + json_string(order.id) + "," + details_json(order.details) +
           R"(,"timestamp":)" + json_string(order.created_at) + "}";
}

std::string json_string(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
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
