DO $$
BEGIN
    IF to_regclass(E'{{schema_text}}.outbox_status_former') IS NOT NULL THEN
        PERFORM pg_temp.outbox_same_rights(E'{{schema_text}}.outbox_status_former'::regclass,
                                           E'{{schema_text}}.outbox_status'::regclass);
        DROP VIEW {{schema}}.outbox_status_former;
        DROP TABLE {{schema}}.outbox_events_former;
    END IF;
END
$$;
DROP FUNCTION pg_temp.outbox_may_change(regclass);
DROP FUNCTION pg_temp.outbox_same_rights(regclass, regclass);
