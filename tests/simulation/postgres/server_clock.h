/* What the simulation and its PostgreSQL server share, in a file that both map. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
#define OUTBOX_SHARED(type) type
extern "C" {
#else
#define OUTBOX_SHARED(type) _Atomic type
#endif

enum { kServerSlots = 512 };

/* Of one process of the server. All are read and written atomically. */
struct ServerSlot {
    OUTBOX_SHARED(int64_t) pid; /* 0: of none */
    OUTBOX_SHARED(int64_t)
    due_us; /* when it asked to be alarmed, by the simulated clock; 0: never */
    OUTBOX_SHARED(int64_t) wait_us;  /* until when it sleeps at most, by the same; 0: for ever */
    OUTBOX_SHARED(uint64_t) alarms;  /* that it has handled */
    OUTBOX_SHARED(uint64_t) wakes;   /* others have sent it to end its sleep */
    OUTBOX_SHARED(uint64_t) seen;    /* of those, before it fell asleep */
    OUTBOX_SHARED(uint64_t) reads;   /* 1: it waits for its client, and not for a lock */
    OUTBOX_SHARED(uint64_t) asleep;  /* 1: nothing it waits for has come */
    OUTBOX_SHARED(uint64_t) writes;  /* 1: its client has not read what it sent before */
    OUTBOX_SHARED(uint64_t) asked;   /* how often it was asked to look at that again */
    OUTBOX_SHARED(uint64_t) looked;  /* of those, before it last found it so */
    OUTBOX_SHARED(uint64_t) streams; /* 1: it sends the log */
    OUTBOX_SHARED(uint64_t) lingers; /* 1: once it has woken one that does it waits for its turn */
    OUTBOX_SHARED(uint64_t) gated;   /* 1: let go by a lock it waits until it is its turn */
    OUTBOX_SHARED(uint64_t) waits;   /* 1: it does */
    OUTBOX_SHARED(uint64_t) turn;    /* 1: it is */
};

struct ServerClock {
    OUTBOX_SHARED(int64_t) wall_us; /* since the Unix epoch; 0: the server's time is the real one */
    struct ServerSlot slots[kServerSlots];
};

#ifdef __cplusplus
}
#endif
