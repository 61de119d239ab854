#include <outbox/spi/source.h>

namespace outbox::spi {

ErrorInfo route_gone(const std::string& route, const std::string& destination,
                     std::span<const std::string> configured) {
    std::string names;
    for (const std::string& name : configured) names += (names.empty() ? "'" : ", '") + name + "'";
    return {ErrorCode::kRouteGone,
            Advice::kStop,
            {},
            "route '" + route + "'" + (destination.empty() ? "" : " to " + destination) +
                " has events that it has not finished, and is not configured any more "
                "(configured: " +
                names +
                "). Configure it again; or if it has another name now: outbox routes rename '" +
                route +
                "' NEW --db URL; or if its events need not go there any more: outbox routes retire "
                "'" +
                route + "' --db URL"};
}

ErrorInfo destination_changed(const std::string& route, const std::string& was,
                              const std::string& is) {
    return {ErrorCode::kDestinationChanged,
            Advice::kRetryDestination,
            {},
            "route '" + route + "' led to " + was + " and now leads to " + is +
                ", which has not got what was sent there; if it is to go on there: outbox routes "
                "accept " +
                route + "; if it is another route: give it a name of its own, --to NAME=URL"};
}

}  // namespace outbox::spi
