#include <outbox/spi/source.h>

namespace outbox::spi {

ErrorInfo route_gone(const std::string& route, const std::string& destination,
                     std::span<const std::string> configured, std::span<const std::string> whose) {
    std::string names;
    for (const std::string& name : configured) names += (names.empty() ? "'" : ", '") + name + "'";
    const std::string given = (whose.empty() ? "" : whose.front()) + " --db URL";
    std::string others;
    for (const std::string& one : whose.subspan(whose.empty() ? 0 : 1)) {
        others += (others.empty() ? " (and the same with" : ", with") + one;
    }
    return {ErrorCode::kRouteGone,
            Advice::kStop,
            {},
            "route '" + route + "'" + (destination.empty() ? "" : " to " + destination) +
                " has events that it has not finished, and is not configured any more "
                "(configured: " +
                names +
                "). Configure it again; or if it has another name now: outbox routes rename '" +
                route + "' NEW" + given +
                "; or if its events need not go there any more: outbox routes retire '" + route +
                "'" + given + others + (others.empty() ? "" : ")")};
}

ErrorInfo destination_changed(const std::string& route, const std::string& was,
                              const std::string& is, const std::string& whose) {
    return {ErrorCode::kDestinationChanged,
            Advice::kRetryDestination,
            {},
            "route '" + route + "' led to " + was + " and now leads to " + is +
                ", which has not got what was sent there; if it is to go on there: outbox routes "
                "accept " +
                route + whose +
                "; if it is another route: give it a name of its own, --to NAME=URL"};
}

}  // namespace outbox::spi
