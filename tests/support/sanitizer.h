#pragma once

// Whether AddressSanitizer is in this build: GCC defines a macro, clang a feature.
#if defined(__SANITIZE_ADDRESS__)
#define OUTBOX_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OUTBOX_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef OUTBOX_ADDRESS_SANITIZER
#define OUTBOX_ADDRESS_SANITIZER 0
#endif
