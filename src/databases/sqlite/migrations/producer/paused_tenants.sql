-- Tenants whose events are kept and not sent, a row for each, until `outbox tenant resume` removes
-- it. `source` is the outbox table; `paused_at` microseconds since the Unix epoch.
CREATE TABLE IF NOT EXISTS outbox_paused_tenants (
    source    text NOT NULL,
    tenant_id text NOT NULL,
    reason    text NOT NULL,
    os_user   text NOT NULL,
    role      text NOT NULL DEFAULT '',
    paused_at integer NOT NULL,
    PRIMARY KEY (source, tenant_id)
);
