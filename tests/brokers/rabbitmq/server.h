#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/conformance/letters.h"
#include "tests/support/files.h"
#include "tests/support/process.h"

namespace outbox::test {

struct RabbitmqOptions {
    std::filesystem::path tls = {};  // with ca.crt and server.pem: a listener with TLS, too
    std::string settings = {};       // more lines of rabbitmq.conf
};

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

// A real RabbitMQ in a folder and on ports of its own, gone with its owner. What cannot be done
// throws std::runtime_error.
class RabbitmqServer {
  public:
    explicit RabbitmqServer(const RabbitmqOptions& options = {});

    // amqp://relay:s3cret@127.0.0.1:PORT/; the same after a restart.
    std::string url(const std::string& user = "relay",
                    const std::string& password = "s3cret") const;
    // The address of the listener with TLS.
    int tls_port() const;

    void start();  // returns when it serves; data survives all of these
    void stop();
    void kill();
    void pause();  // SIGSTOP: it hangs
    void resume();
    bool running();

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
    std::string api(const std::string& method, const std::string& path,
                    const std::string& body = "");

    // It has no memory left, and takes no messages; or it has some again.
    void alarm(bool on);
    // A setting that new channels use, until it ends.
    void set(const std::string& name, const std::string& value);

    std::string log_tail() const;

  private:
    void control(std::vector<std::string> arguments);
    std::string python(std::vector<std::string> arguments, const std::string& url,
                       const std::string& input = "");

    TemporaryFolder folder_{"rabbitmq"};
    RabbitmqOptions options_;
    int port_;
    std::optional<Process> process_;
};

// One for all tests of a program, started at first use.
RabbitmqServer& shared_rabbitmq();

}  // namespace outbox::test
