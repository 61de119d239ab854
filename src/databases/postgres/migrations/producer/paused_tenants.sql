-- Tenants whose events are kept and not sent, a row for each, until `outbox tenant resume` removes
-- it. `source` is the outbox table.
CREATE TABLE IF NOT EXISTS {{schema}}.outbox_paused_tenants (
    source    text NOT NULL,
    tenant_id text NOT NULL,
    reason    text NOT NULL,
    os_user   text NOT NULL,
    role      text NOT NULL DEFAULT session_user,
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source, tenant_id)
);
