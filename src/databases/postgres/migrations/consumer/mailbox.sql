-- Messages that the relay has delivered into this database and that nobody has applied yet.
-- Readers go by the rows that are there, never by a remembered position: with several writers
-- a lower position can become visible after a higher one.
CREATE TABLE IF NOT EXISTS {{schema}}.outbox_mailbox (
    position    bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    mailbox     text NOT NULL DEFAULT 'default',
    id          text NOT NULL CHECK (id <> '' AND octet_length(id) <= 255),
    topic       text NOT NULL,
    key         text,
    headers     json CHECK (json_typeof(headers) = 'object'),
    payload     bytea,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (mailbox, position),
    UNIQUE (mailbox, id)
);
