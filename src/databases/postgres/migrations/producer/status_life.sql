-- What ledgers of another table say counts for nothing in outbox_status: its events are PENDING.
DO $$
BEGIN
    EXECUTE E'CREATE OR REPLACE VIEW {{schema_text}}.outbox_status AS ' || replace(
        pg_get_viewdef(E'{{schema_text}}.outbox_status'::regclass),
        'SELECT ' || E'{{schema_text}}.outbox_source'::regproc || '()',
        E'SELECT {{schema_text}}.outbox_ledger_source()');
END
$$;
