#include "admin/listener.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <unistd.h>

namespace outbox::admin {

using boost::asio::ip::tcp;

Result<std::unique_ptr<Listener>> Listener::open(const std::string& host, std::uint16_t port) {
    try {
        boost::asio::io_context context;
        const auto found =
            tcp::resolver(context).resolve(host, std::to_string(port), tcp::resolver::passive);
        const tcp::endpoint endpoint = found.begin()->endpoint();
        tcp::acceptor acceptor(context, endpoint);  // which sets SO_REUSEADDR
        return std::unique_ptr<Listener>(
            new Listener(acceptor.release(), endpoint.address().is_v6()));
    } catch (const boost::system::system_error& error) {
        const bool in_use = error.code() == boost::asio::error::address_in_use;
        return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                         "cannot listen on " + host + ":" + std::to_string(port) + ": " +
                             (in_use ? "another program uses this port" : error.code().message())};
    }
}

Listener::~Listener() {
    close(descriptor_);
}

}  // namespace outbox::admin
