#include "tests/polyglot/suite.h"

namespace outbox::test {

INSTANTIATE_TEST_SUITE_P(Python, Polyglot, testing::Values("python"));
INSTANTIATE_TEST_SUITE_P(Python, PolyglotHttp, testing::Values("python"));

}  // namespace outbox::test
