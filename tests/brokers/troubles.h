#pragma once

#include <csignal>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <outbox/spi/sink.h>

#include "tests/conformance/letters.h"
#include "tests/support/certificates.h"
#include "tests/support/process.h"

// What the tests of servers in trouble share.
namespace outbox::test {

// An authority, a certificate of "localhost" (server.pem), and another authority's (other.crt).
const Certificates& broker_certificates();

// All outcomes of these records, published at once; tokens are their places.
spi::Completions outcome_of(spi::Sink& sink, const std::vector<Letter>& letters);
// Of one record; throws where it does not fail.
spi::FailedRecord failure_of(spi::Sink& sink, const std::string& topic);

// What it has to tell, a line for each note.
std::string notes_of(spi::Sink& sink);

// Delivers; calls `act` once `after` letters have arrived, and `undo` once one has failed since. No
// attempt may count, and none may be dead.
void deliver_through(spi::Sink& sink, const std::vector<Letter>& sent, std::size_t after,
                     const std::function<void()>& act, const std::function<void()>& undo);

// Letters of ten keys, of which one goes to `other`; and those of them that go to a topic.
std::vector<Letter> letters_to_two(const std::string& topic, const std::string& other,
                                   std::size_t count = 1'000);
std::vector<Letter> letters_to(const std::string& topic, const std::vector<Letter>& all);
// Delivers such; `repair` is called once all others have arrived. Until then what goes to one topic
// waits, as failures of this part alone; no attempt may count.
void deliver_while_one_waits(spi::Sink& sink, const std::vector<Letter>& sent,
                             const std::string& part, const std::function<void()>& repair);

// That it takes no more than about `max_bytes`, a million, from its caller while the server hangs.
void expect_limits_while_it_hangs(spi::Sink& sink, const std::string& topic,
                                  const std::function<void()>& pause,
                                  const std::function<void()>& resume);

// That a connection which is idle while the server restarts costs no failure.
void expect_no_failure_after_idling(spi::Sink& sink, const std::string& topic,
                                    const std::function<void()>& restart);

// A private copy of a file, which can be broken for a moment.
class BreakableFile {
  public:
    explicit BreakableFile(const std::string& text);
    [[nodiscard]] std::string path() const { return folder_ / "file"; }
    void empty() const { write(""); }
    void mend() const { write(text_); }

  private:
    void write(const std::string& text) const;
    TemporaryFolder folder_{"breakable"};
    std::string text_;
};

// That a file which is broken while the sink connects again is an outage, and no more.
void expect_an_outage_while_broken(spi::Sink& sink, const std::string& topic,
                                   const BreakableFile& file, const std::function<void()>& restart);

// That the certificates decide, by the sink's check of a host with such options.
using CheckOfHost = std::function<Status(const std::string& host, const std::string& options)>;
void expect_tls_proves_who_it_is(const std::string& option_prefix, const CheckOfHost& check,
                                 const Certificates& certificates = broker_certificates());

// A way to the server at `port` whose connections end where a client sends `kEndsConnections`, or
// more than a number of bytes, or the first or second message of `deliver_one_by_one`, or once its
// first is answered.
inline constexpr const char* kEndsConnections = "end-this-connection";
inline constexpr const char* kManyBytes = "65536";
inline constexpr const char* kFirstMessage = "message-text*1";
inline constexpr const char* kSecondMessage = "message-text*2";
inline constexpr const char* kFirstAnswer = "message-text+";
class CuttingWay {
  public:
    explicit CuttingWay(int port, const std::string& ends_for = kEndsConnections);
    int port() const { return port_; }
    /// Ends the connections that there are.
    void cut() { process_.kill(SIGHUP); }

  private:
    int port_;
    Process process_;
};
// That, through such a way, events that end each connection are nobody's fault while there are no
// others, but a failure of `part`, and their own once others pass, none of which fails.
void expect_what_ends_connections_is_found(spi::Sink& sink, const std::string& topic,
                                           const std::string& part = {});
// Delivers letters of many sizes through a way for `kManyBytes`, each of which passes there as the
// first of a connection, or those for a way for `kSecondMessage` or `kFirstAnswer`. None may fail.
std::vector<Letter> deliver_many_sizes(spi::Sink& sink, const std::string& topic);
std::vector<Letter> deliver_one_by_one(spi::Sink& sink, const std::string& topic,
                                       std::size_t keys = 10);

// Every letter, in the order of its key, and nothing twice.
void expect_once_in_order(const std::vector<Letter>& sent, const std::vector<Arrived>& arrived);

}  // namespace outbox::test
