// The contract for the languages whose toolchains only a full setup installs.

#include "tests/polyglot/suite.h"

namespace outbox::test {
namespace {

const auto kOthers = testing::Values("go");
const auto kName = [](const testing::TestParamInfo<std::string>& info) { return info.param; };
INSTANTIATE_TEST_SUITE_P(Others, Polyglot, kOthers, kName);
INSTANTIATE_TEST_SUITE_P(Others, PolyglotHttp, kOthers, kName);

}  // namespace
}  // namespace outbox::test
