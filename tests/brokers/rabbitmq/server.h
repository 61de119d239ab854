#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/brokers/broker_server.h"
#include "tests/conformance/letters.h"

namespace outbox::test {

// A message as pika saw it.
struct RabbitmqMessage {
    Arrived record;
    std::string type;
    std::string app_id;
    std::string content_type;
    std::string routing_key;
    long long timestamp = 0;
    int delivery_mode = 0;
};

// The patterns of `rabbitmqctl set_permissions`.
struct RabbitmqRights {
    std::string configure;
    std::string write;
    std::string read;
};

// A real RabbitMQ.
class RabbitmqServer : public BrokerServer {
  public:
    explicit RabbitmqServer(const std::filesystem::path& tls = {},
                            const std::string& settings = {});

    // amqp://relay:s3cret@127.0.0.1:PORT/; the same after a restart.
    std::string url(const std::string& user = "relay",
                    const std::string& password = "s3cret") const;
    // The address of the listener with TLS.
    int tls_port() const;

    // By pika, or the HTTP API.
    void make_exchange(const std::string& name, const std::string& type = "topic");
    void remove_exchange(const std::string& name);
    // A queue that gets the messages of `exchange` with `key` (empty: its own name).
    void make_queue(const std::string& name, const std::string& exchange = "",
                    const std::string& key = "", const std::string& arguments = "{}");
    void remove_queue(const std::string& name);
    // With the letter's topic as the routing key.
    void publish(const std::string& exchange, const std::vector<Letter>& letters);
    // The same from the lines that client.py reads.
    void publish_json(const std::string& exchange, const std::string& lines);
    // Messages that are there once nobody reads any more, for which it waits.
    std::size_t left(const std::string& queue);
    std::vector<RabbitmqMessage> read(const std::string& queue, std::size_t count);
    std::vector<Arrived> arrived(const std::string& queue, std::size_t count);
    // A user with password "pw".
    void make_user(const std::string& name, const RabbitmqRights& rights);
    std::string api(const std::string& method, const std::string& path,
                    const std::string& body = "");

    // It has no memory left, and takes no messages; or it has some again.
    void alarm(bool on);
    // The queue gives no confirms, as one that hangs or has no majority; or it does again.
    void hang(const std::string& queue, bool on);
    // A setting that new channels use, until it ends.
    void set(const std::string& name, const std::string& value);

  private:
    void control(std::vector<std::string> arguments);
    std::string python(std::vector<std::string> arguments, const std::string& url,
                       const std::string& input = "");
};

// Those that docs/brokers/rabbitmq.md gives the user.
RabbitmqRights rights_of_page(const std::string& user);
// What the page calls the default exchange in such a pattern.
std::string default_exchange_of_page();

// One for all tests of a program, started at first use.
RabbitmqServer& shared_rabbitmq();

}  // namespace outbox::test
