#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/brokers/broker_server.h"
#include "tests/conformance/letters.h"
#include "tests/support/process.h"

namespace outbox::test {

// A server of the protocol of one of AWS' services, by script/servers/NAME.
class AwsServer : public BrokerServer {
  public:
    AwsServer(const std::string& name, const std::string& ready, const std::string& settings = {});

    std::string url() const;  // the same after a restart

    // By boto3: a queue, or a topic with one behind it.
    void make(const std::string& name, const std::vector<std::string>& attributes = {});
    void remove(const std::string& name);
    // Takes what is there: whole lines of client.py, and what they say. After a restart ElasticMQ
    // gives a group to several readers at once, and no order can be seen then but by one.
    std::vector<std::string> read_lines(const std::string& queue, std::size_t count,
                                        int readers = 1);
    std::vector<Arrived> arrived(const std::string& queue, std::size_t count, int readers = 1);
    std::string ask(std::vector<std::string> command);

  private:
    const std::string name_;
};

// A way to a server that can break while the server stays, with all that it has acknowledged.
class Way {
  public:
    explicit Way(const AwsServer& server);
    std::string url() const;  // as the server's; the same after it broke
    void open();
    void cut();    // ends all connections; nobody listens any more
    void pause();  // it hangs
    void resume();

  private:
    const int to_;
    const int port_;
    const std::string scheme_;
    std::optional<Process> process_;
};

// aws.py, until this goes.
class AwsService {
  public:
    explicit AwsService(std::string name, const std::string& certificate = {});
    std::string address(const std::string& host = "127.0.0.1") const;  // host:port
    // NAME+http://AKID:SECRET@127.0.0.1:PORT
    std::string url(const std::string& key = "AKID",
                    const std::string& secret = "s3cret-of-aws") const;

  private:
    const std::string name_;
    Process process_;
    std::string port_;
};

}  // namespace outbox::test
