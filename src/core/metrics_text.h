#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outbox {

/// A page of figures in Prometheus' text format 0.0.4, for what services show among their own: the
/// relay's page is prometheus-cpp's, which libraries for services do not link.
class MetricsText {
  public:
    using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

    /// Begins a metric; the samples of it follow.
    void metric(std::string_view name, std::string_view type, std::string_view help);
    /// A sample of the metric that was begun last. Values of labels are escaped.
    void sample(const Labels& labels, std::string_view value);
    /// The page so far.
    [[nodiscard]] const std::string& text() const { return page_; }

  private:
    std::string page_;
    std::string name_;
};

}  // namespace outbox
