-- Messages that the relay has delivered into this database and that nobody has applied yet. Times
-- are microseconds since the Unix epoch. A payload is text where it is valid UTF-8, else a blob.
CREATE TABLE IF NOT EXISTS outbox_mailbox (
    position    INTEGER PRIMARY KEY AUTOINCREMENT,
    mailbox     text NOT NULL DEFAULT 'default',
    id          text NOT NULL CHECK (id <> '' AND length(CAST(id AS blob)) <= 255),
    topic       text NOT NULL,
    key         text,
    headers     text CHECK (headers IS NULL
                            OR (json_valid(headers) AND json_type(headers) = 'object')),
    payload     blob,
    received_at integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    UNIQUE (mailbox, id)
);
CREATE INDEX IF NOT EXISTS outbox_mailbox_order ON outbox_mailbox (mailbox, position);
