-- What operators did to dead letters and delayed events. Rows are added and never changed.
CREATE TABLE IF NOT EXISTS outbox_audit (
    audit_id  INTEGER PRIMARY KEY AUTOINCREMENT,
    at        integer NOT NULL,
    os_user   text NOT NULL,
    source    text NOT NULL,
    action    text NOT NULL,
    detail    text NOT NULL,
    events    integer NOT NULL,
    event_ids text NOT NULL
);
CREATE TRIGGER IF NOT EXISTS outbox_audit_not_changed BEFORE UPDATE ON outbox_audit
BEGIN
    SELECT RAISE(ABORT, 'rows of outbox_audit are never changed');
END;
CREATE TRIGGER IF NOT EXISTS outbox_audit_not_removed BEFORE DELETE ON outbox_audit
BEGIN
    SELECT RAISE(ABORT, 'rows of outbox_audit are never changed');
END;
