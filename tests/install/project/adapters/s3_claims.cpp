// Needs outbox::claim_s3, and no header but those below; never called.
#include <outbox/consumer/claims.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(outbox::s3_claims(""));
    return 1;
}
