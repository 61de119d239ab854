-- Lets the relay take events from PostgreSQL's log. Without it the relay polls: a role that may not
-- make it is no error. Inserts only, so that the relay's own removals are not decoded; a table of
-- segments by its own name.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = 'outbox') THEN
        CREATE PUBLICATION outbox FOR TABLE {{schema}}.outbox_events WITH (publish = 'insert',
            publish_via_partition_root = true);
    END IF;
EXCEPTION
    WHEN lock_not_available THEN RAISE;  -- which is tried again
    WHEN OTHERS THEN
        RAISE NOTICE 'publication outbox was not made: %', SQLERRM;
END
$$;
