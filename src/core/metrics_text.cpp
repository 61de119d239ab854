#include "core/metrics_text.h"

namespace outbox {
namespace {

void append_escaped(std::string_view value, std::string& out) {
    for (const char c : value) {
        if (c == '\\' || c == '"') out += '\\';
        out += c == '\n' ? "\\n" : std::string_view(&c, 1);
    }
}

}  // namespace

void MetricsText::metric(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    page_.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ");
    page_.append(name).append(" ").append(type).append("\n");
}

void MetricsText::sample(const Labels& labels, std::string_view value) {
    page_ += name_;
    char before = '{';
    for (const auto& [label, of] : labels) {
        page_.append(1, before).append(label).append("=\"");
        append_escaped(of, page_);
        page_ += '"';
        before = ',';
    }
    page_.append(labels.empty() ? " " : "} ").append(value).append("\n");
}

}  // namespace outbox
