// Needs outbox::tracing_otlp, and no header but those below; never called.
#include <outbox/consumer/spans.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(outbox::otlp_spans("", "service"));
    return 1;
}
