#pragma once

#include <string>

#include <outbox/consumer/queue.h>

namespace outbox::test {

/// The broker's own function; each program of queue_member.cpp is linked with one.
Queue queue_of(const std::string& url);

}  // namespace outbox::test
