-- The billing consumer's own table, beside those of `outbox migrate --only consumer`.
CREATE TABLE invoices (
    order_id text PRIMARY KEY,
    version  integer NOT NULL,
    cents    bigint NOT NULL
);
