#include "json_fields.h"

#include <nlohmann/json.hpp>

namespace orders {

namespace {

using Field = JsonField;

/// A parser of events and not a document, because a document keeps numbers as binary fractions and
/// lets the last of two equal names win.
class Reader : public nlohmann::json_sax<nlohmann::json> {
  public:
    JsonFields out;

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
        if (!out.fields.contains(name_)) return true;
        out.problem = "the field \"" + name_ + "\" is given twice";
        return false;
    }
    bool parse_error(std::size_t position, const std::string&,
                     const nlohmann::json::exception&) override {
        out.problem =
            "invalid JSON at byte " + std::to_string(position) + "; expected one UTF-8 JSON object";
        return false;
    }

  private:
    bool add(Field field) {
        if (depth_ == 0) return not_an_object();
        if (depth_ == 1) out.fields[name_] = std::move(field);
        return true;
    }
    bool start(bool object) {
        if (depth_ == 0 && !object) return not_an_object();
        if (depth_ == 1) out.fields[name_] = {};
        ++depth_;
        return true;
    }
    bool end() {
        --depth_;
        return true;
    }
    bool not_an_object() {
        out.problem = "the body must be a JSON object";
        return false;
    }

    std::string name_;
    std::size_t depth_ = 0;
};

}  // namespace

JsonFields read_json_fields(std::string_view text) {
    Reader reader;
    nlohmann::json::sax_parse(text, &reader);
    return std::move(reader.out);
}

std::string json_string(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace orders
