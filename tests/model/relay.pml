/* Lease, ledger, holes and routes that come and go, as PostgreSQL and two relays play them, in every
 * order in which their steps can fall. `model_test.py` searches all of it, and once more with each
 * guard taken out (-DWITHOUT_...), when a promise must be seen to break.
 *
 * A step that is one transaction or one system call is atomic here; what lies between two steps may
 * be as long as it likes, so a relay that was stopped for hours and goes on as if nothing had
 * happened (a zombie) is one whose steps come late. Sets of positions and of routes are bits. */

#ifndef EVENTS
#define EVENTS 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef ZOMBIES
#define ZOMBIES 1 /* leases that are taken from an owner that goes on */
#endif
#define RELAYS 2
#define ROUTES 2
#define ALL_ROUTES 3
#define NOBODY 255

#define BIT(n) (1 << (n))
#define BELOW(n) (BIT(n) - 1)

/* --- the database */
byte next_position = 0;
byte of_key[2]; /* positions, by the key of their events */
byte writing;   /* taken by transactions that have not ended */
byte rows;      /* committed, and not removed */
byte owner = NOBODY;
byte epoch = 0;
byte routes;       /* that the ledger knows */
byte done[ROUTES]; /* the ledger */

/* --- what was promised, and what became of it */
byte life[ROUTES];      /* how often a route was made */
byte owed[ROUTES];      /* to the route, in this life of it */
byte delivered[ROUTES]; /* to its destination, in this life */
byte deaths = 0;
byte zombies = 0;

#define IS_OWED(set, route) (owed[route] & (set) & ~delivered[route])

inline owe(e) {
    if
    :: routes & BIT(0) -> owed[0] = owed[0] | BIT(e)
    :: else
    fi;
    if
    :: routes & BIT(1) -> owed[1] = owed[1] | BIT(e)
    :: else
    fi
}

/* Where a read looks: above the mark and in the holes. */
#define UNREAD ((255 & ~BELOW(mark)) | holes | fresh)

#define BEFORE(n) (BELOW(n) & ((of_key[0] & BIT(n)) -> of_key[0] : of_key[1]))
#ifndef WITHOUT_LANES
#define IS_NEXT(route, n) ((have & ~finished[route] & BEFORE(n)) == 0)
#else
#define IS_NEXT(route, n) true
#endif

/* Sends it, in one step, and hears of its acknowledgement in another. */
#define SEND(route, n)                                                             \
    atomic {                                                                       \
        (config & BIT(route)) && (have & ~finished[route] & BIT(n)) &&             \
            IS_NEXT(route, n) ->                                                   \
        if                                                                         \
        :: my_life[route] == life[route] && !(delivered[route] & BIT(n)) ->        \
           /* First occurrences keep the order of their key. */                    \
           assert(IS_OWED(BEFORE(n), route) == 0);                                 \
           delivered[route] = delivered[route] | BIT(n)                            \
        :: else                                                                    \
        fi                                                                         \
    }                                                                              \
    finished[route] = finished[route] | BIT(n)

#ifndef WITHOUT_EVERY_ROUTE
#define REMOVABLE                                                                  \
    (have & ((config & 1) -> recorded[0] : 255) & ((config & 2) -> recorded[1] : 255))
#else
#define REMOVABLE (have & (recorded[0] | recorded[1]))
#endif

/* One event in one transaction. Writers of a key serialise before they insert, as promise 2 asks. */
proctype Writer(byte key) {
    byte e;
    atomic {
        (writing & of_key[key]) == 0;
        e = next_position;
        next_position++;
        of_key[key] = of_key[key] | BIT(e);
        writing = writing | BIT(e)
    }
    atomic {
        writing = writing & ~BIT(e);
        if
        :: rows = rows | BIT(e);
           owe(e)
        :: skip /* rolled back */
        fi
    }
    e = 0
}

proctype Relay(byte me) {
    byte my_epoch;
    byte config;          /* its routes */
    byte my_life[ROUTES]; /* of these */
    byte have;            /* rows it has read */
    byte finished[ROUTES];
    byte recorded[ROUTES];
    byte mark;    /* positions below were read */
    byte fresh;   /* holes whose writers were not asked for yet */
    byte holes;   /* those that wait for `writers` */
    byte writers; /* that were there after the holes were seen, and have not ended */
    bool closing;
#ifdef WITHOUT_WRITERS_AFTER_THE_HOLE
    byte asked; /* who wrote before the read that saw a hole */
#endif
    byte snapshot;
    byte begun;
    byte e;
    byte r;

idle:
    atomic { config = 0; have = 0; mark = 0; fresh = 0; holes = 0; writers = 0;
             finished[0] = 0; finished[1] = 0; recorded[0] = 0; recorded[1] = 0;
             my_life[0] = 0; my_life[1] = 0; my_epoch = 0; e = 0; r = 0; snapshot = 0; begun = 0; closing = false };
    atomic {
        if
        :: owner == NOBODY && (me == 0 || epoch > 0) /* which is first makes no difference */
        :: owner != NOBODY && owner != me && zombies < ZOMBIES -> zombies++
        fi;
        owner = me;
        epoch++;
        my_epoch = epoch;
        if
        :: config = 1
        :: config = 2
        :: config = 3
        fi
    }

    /* The beginning of a term: one transaction. */
    atomic {
        if
        :: epoch != my_epoch -> goto idle
        :: else
        fi;
        r = 0;
        do
        :: r < ROUTES && (routes & BIT(r)) && !(config & BIT(r)) ->
#ifndef WITHOUT_ROUTE_GONE
           if
           :: (rows & ~done[r]) != 0 -> config = config | BIT(r) /* refused; its owner adds it */
           :: else -> routes = routes & ~BIT(r); done[r] = 0
           fi;
#else
           routes = routes & ~BIT(r);
           done[r] = 0;
#endif
           r++
        :: r < ROUTES && !((routes & BIT(r)) && !(config & BIT(r))) -> r++
        :: r == ROUTES -> break
        od;
        /* A new route begins with what not every known one has finished. */
        begun = (routes -> ((routes & 1) -> done[0] : 255) & ((routes & 2) -> done[1] : 255) : 0);
        r = 0;
        do
        :: r < ROUTES && (config & BIT(r)) && !(routes & BIT(r)) ->
           routes = routes | BIT(r);
#ifndef WITHOUT_UNFINISHED_ROWS
           done[r] = begun & rows;
#else
           done[r] = rows;
#endif
           life[r]++;
           delivered[r] = 0;
           owed[r] = rows & ~begun;
           r++
        :: r < ROUTES && !((config & BIT(r)) && !(routes & BIT(r))) -> r++
        :: r == ROUTES -> break
        od;
        r = 0;
        do
        :: r < ROUTES ->
           if
           :: config & BIT(r) ->
              finished[r] = done[r];
              recorded[r] = done[r];
              my_life[r] = life[r]
           :: else
           fi;
           r++
        :: r == ROUTES -> break
        od;
        begun = 0;
        r = 0
    }

    do
    /* Killed, at any moment; its database sees it at once. */
    :: atomic {
           deaths < DEATHS -> deaths++;
           if
           :: owner == me && epoch == my_epoch -> owner = NOBODY
           :: else
           fi;
           goto idle
       }

    /* A read: what is there above the mark and in the holes, in one snapshot; then what follows. */
    :: atomic {
           (rows & ~have & UNREAD) || (holes && !writers) ->
           snapshot = rows;
           closing = (holes != 0 && writers == 0)
       }
       atomic {
           have = have | (snapshot & UNREAD);
           /* Numbers without a row below the highest one are holes. */
           e = EVENTS;
           do
           :: e > mark && !(snapshot & BIT(e - 1)) -> e--
           :: else -> break
           od;
           if
           :: closing ->
              /* A closed hole is never looked into again. */
              assert((writing & holes & ~snapshot) == 0);
              assert((rows & holes & ~snapshot) == 0);
              holes = 0
           :: else -> holes = holes & ~snapshot
           fi;
           fresh = (fresh & ~snapshot) | (BELOW(e) & ~BELOW(mark) & ~snapshot);
           mark = e;
#ifdef WITHOUT_WRITERS_AFTER_THE_HOLE
           if
           :: holes == 0 -> holes = fresh; fresh = 0; writers = asked & writing
           :: else
           fi;
           asked = writing;
#endif
           snapshot = 0;
           closing = false;
           e = 0
       }

    /* Who may still write: those of whom a hole that was seen before may be. */
    :: atomic {
           (fresh && !holes) || (writers & ~writing) ->
           writers = writers & writing;
           if
           :: fresh && !holes -> holes = fresh; writers = writing; fresh = 0
           :: else
           fi
#ifdef WITHOUT_A_READ_BEHIND_THE_WRITERS
           ;
           if
           :: holes && !writers ->
              assert((rows & holes) == 0);
              holes = 0
           :: else
           fi
#endif
       }

    /* Sends an event: the oldest unfinished one of its key. */
    :: SEND(0, 0)
    :: SEND(0, 1)
    :: SEND(0, 2)
    :: SEND(1, 0)
    :: SEND(1, 1)
    :: SEND(1, 2)

    /* Records what was acknowledged: one transaction, whose last statement looks at the epoch. */
    :: atomic {
           finished[0] != recorded[0] || finished[1] != recorded[1] ->
#ifndef WITHOUT_THE_FENCE_OF_RECORDS
           if
           :: epoch != my_epoch -> goto idle
           :: else
           fi;
#endif
           r = 0;
           do
           :: r < ROUTES ->
              if
              :: config & BIT(r) ->
                 done[r] = done[r] | (finished[r] & ~recorded[r]);
                 recorded[r] = finished[r]
              :: else
              fi;
              r++
           :: r == ROUTES -> break
           od;
           r = 0
       }

    /* Removes what each of its routes has finished: one transaction like that. */
    :: atomic {
           REMOVABLE ->
#ifndef WITHOUT_THE_FENCE_OF_REMOVALS
           if
           :: epoch != my_epoch -> goto idle
           :: else
           fi;
#endif
           snapshot = REMOVABLE;
           assert(!(routes & 1) || IS_OWED(snapshot & rows, 0) == 0);
           assert(!(routes & 2) || IS_OWED(snapshot & rows, 1) == 0);
           rows = rows & ~snapshot;
           done[0] = done[0] & ~snapshot;
           done[1] = done[1] & ~snapshot;
           have = have & ~snapshot;
           snapshot = 0
       }
    od
}

/* When nobody can do anything more: all was delivered and nothing is left. */
proctype Judge() {
    timeout;
    assert(!(routes & 1) || IS_OWED(255, 0) == 0);
    assert(!(routes & 2) || IS_OWED(255, 1) == 0);
    assert(rows == 0);
    assert(done[0] == 0 && done[1] == 0)
}

init {
    byte n = 0;
    atomic {
        do /* not every history has them all */
        :: deaths < DEATHS -> deaths++
        :: break
        od;
        do
        :: zombies < ZOMBIES -> zombies++
        :: break
        od;
        do
        :: n < EVENTS - 1 -> run Writer(0); n++
        :: n == EVENTS - 1 -> run Writer(0); n++
        :: n == EVENTS - 1 -> run Writer(1); n++
        :: n == EVENTS -> break
        od;
        run Relay(0);
        run Relay(1);
        run Judge()
    }
}
