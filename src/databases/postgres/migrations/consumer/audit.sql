-- What operators did to dead letters and delayed events. Rows are added and never changed.
DO $$
BEGIN
    IF to_regclass(E'{{schema_text}}.outbox_audit') IS NOT NULL THEN
        RETURN;
    END IF;
    CREATE TABLE {{schema}}.outbox_audit (
        audit_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at        timestamptz NOT NULL DEFAULT clock_timestamp(),
        role      text NOT NULL DEFAULT session_user,
        os_user   text NOT NULL,
        source    text NOT NULL,
        action    text NOT NULL,
        detail    text NOT NULL,
        events    bigint NOT NULL,
        event_ids text[] NOT NULL
    );
    CREATE FUNCTION {{schema}}.outbox_refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS 'BEGIN RAISE EXCEPTION ''rows of % are never changed'', TG_TABLE_NAME; END';
    CREATE TRIGGER outbox_audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE
        ON {{schema}}.outbox_audit FOR EACH STATEMENT
        EXECUTE FUNCTION {{schema}}.outbox_refuse_change();
END
$$;
