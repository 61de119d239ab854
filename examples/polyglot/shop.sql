-- The order service's own tables, beside those of `outbox migrate`.
CREATE TABLE customers (name text PRIMARY KEY);
CREATE TABLE orders (
    id       text PRIMARY KEY,
    customer text NOT NULL REFERENCES customers DEFERRABLE INITIALLY DEFERRED,
    cents    bigint NOT NULL CHECK (cents > 0),
    version  integer NOT NULL DEFAULT 1
);
