#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "tests/conformance/letters.h"
#include "tests/support/process.h"

namespace outbox::test {

// `script/demo --to URL`.
Finished run_demo(const std::string& to);
// The same, which must succeed and show no password: how many events it says that the broker has
// acknowledged.
std::size_t events_of_demo(const std::string& to);
std::set<std::string> ids_of(const std::vector<Arrived>& arrived);

}  // namespace outbox::test
