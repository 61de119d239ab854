-- What the consumers of queues write down beside the messages.

-- Messages that came again and again, how often their handler was begun and nobody saw its end: the
-- process may have ended with it. One that was not begun for a month is forgotten.
CREATE TABLE outbox_inbox_begun (
    consumer   text NOT NULL,
    message_id text NOT NULL,
    times      integer NOT NULL,
    begun_at   integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID;

-- What waits in a queue for all members of it, beside what waits for this member alone (lag).
ALTER TABLE outbox_inbox_stats ADD COLUMN queue text;
ALTER TABLE outbox_inbox_stats ADD COLUMN queue_lag integer;
