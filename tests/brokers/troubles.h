#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <outbox/spi/sink.h>

#include "tests/conformance/letters.h"
#include "tests/support/certificates.h"

// What the tests of servers in trouble share.
namespace outbox::test {

// An authority, a certificate of "localhost" (server.pem), and another authority's (other.crt).
const Certificates& broker_certificates();

// All outcomes of these records, published at once; tokens are their places.
spi::Completions outcome_of(spi::Sink& sink, const std::vector<Letter>& letters);
// Of one record; throws where it does not fail.
spi::FailedRecord failure_of(spi::Sink& sink, const std::string& topic);

// Delivers; calls `act` once `after` letters have arrived, and `undo` once one has failed since. No
// attempt may count, and none may be dead.
void deliver_through(spi::Sink& sink, const std::vector<Letter>& sent, std::size_t after,
                     const std::function<void()>& act, const std::function<void()>& undo);

// Every letter, in the order of its key, and nothing twice.
void expect_once_in_order(const std::vector<Letter>& sent, const std::vector<Arrived>& arrived);

}  // namespace outbox::test
