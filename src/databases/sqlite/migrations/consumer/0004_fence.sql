-- Read your writes across services: whether a consumer has applied the events of a fence token.

-- An operator has discarded its dead letter: it was never applied, and never will be.
ALTER TABLE outbox_inbox ADD COLUMN discarded integer NOT NULL DEFAULT 0;
