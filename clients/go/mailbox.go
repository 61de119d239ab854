package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Message is a message of a mailbox.
type Message struct {
	Position int64 // below 0: a dead letter that an operator retries
	ID       string
	Topic    string
	Key      sql.NullString
	Headers  map[string]any
	Payload  []byte // nil: a tombstone
}

// JSON decodes the payload.
func (m Message) JSON(into any) error { return json.Unmarshal(m.Payload, into) }

// Handler applies a message in the transaction that takes it: what it writes there commits with the
// message, or not at all. It neither commits nor rolls back.
type Handler func(ctx context.Context, tx *sql.Tx, message Message) error

// Mailbox is one member that takes messages of a mailbox; start as many as you like. Set DB and
// Consumer; the zero values of the others are the defaults. Not to be changed while it runs.
type Mailbox struct {
	DB          *sql.DB
	Consumer    string
	Name        string        // of the mailbox; "default"
	Batch       int           // messages in one transaction; 100
	MaxAttempts int           // of a message, then it is a dead letter; 5
	Idle        time.Duration // between looking into an empty mailbox; 100 ms

	// OnError is told of an outage of the database, once for each try, and of each message that
	// failed. May be nil.
	OnError func(error)
}

const afterOutage = time.Second

var errIncomplete = errors.New("outbox: a Mailbox needs DB and Consumer, and a handler")

// Run takes and applies until the context is done, and then returns nil. It waits out an outage of
// the database, and returns the errors that only a person can mend: a missing right or function, a
// wrong password.
func (m *Mailbox) Run(ctx context.Context, handler Handler) error {
	for ctx.Err() == nil {
		some, err := m.Turn(ctx, handler)
		wait := time.Duration(0)
		switch {
		case err != nil && ctx.Err() != nil:
		case err != nil && !passes(err):
			return err
		case err != nil:
			m.tell(err)
			wait = afterOutage
		case !some:
			wait = orDefault(m.Idle, 100*time.Millisecond)
		}
		sleep(ctx, wait)
	}
	return nil
}

// Turn takes and applies once; true where there was something. A handler that fails or panics has
// its message tried again later, its key waiting; what came before it in the batch comes again. Once
// the context is done nothing more is applied, and what is under way counts as no failure.
func (m *Mailbox) Turn(ctx context.Context, handler Handler) (bool, error) {
	if m.DB == nil || m.Consumer == "" || handler == nil {
		return false, errIncomplete
	}
	// One session, so that an outage is not taken for the message's fault.
	session, err := m.DB.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer session.Close()
	taken, failed, err := m.apply(ctx, session, handler)
	switch {
	case err == nil:
		return taken > 0, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case again(err):
		return true, nil
	case failed == nil:
		return false, err
	}
	if _, told := session.ExecContext(ctx, `SELECT outbox_mailbox_failed($1, $2, $3, $4, $5)`,
		m.Consumer, m.name(), failed.Position, storable(err.Error()),
		orDefault(m.MaxAttempts, 5)); told != nil {
		return false, told
	}
	m.tell(fmt.Errorf("outbox: message %s: %w", failed.ID, err))
	return true, nil
}

// One transaction. `failed`: the message whose handler gave the error.
func (m *Mailbox) apply(ctx context.Context, session *sql.Conn, handler Handler) (
	taken int, failed *Message, err error) {
	tx, err := session.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, nil, err
	}
	defer tx.Rollback() // does nothing after the commit
	messages, err := m.take(ctx, tx)
	if err != nil {
		return 0, nil, err
	}
	for i := range messages {
		if ctx.Err() != nil {
			return 0, nil, ctx.Err()
		}
		if err = call(ctx, tx, handler, messages[i]); err == nil {
			_, err = tx.ExecContext(ctx, `SELECT outbox_mailbox_done($1, $2, $3)`,
				m.Consumer, m.name(), messages[i].Position)
		}
		if err != nil {
			return 0, &messages[i], err
		}
	}
	return len(messages), nil, tx.Commit()
}

func (m *Mailbox) take(ctx context.Context, tx *sql.Tx) ([]Message, error) {
	rows, err := tx.QueryContext(ctx,
		`SELECT position, id, topic, key, headers::text, payload
		 FROM outbox_mailbox_take($1, $2, $3)`, m.Consumer, m.name(), orDefault(m.Batch, 100))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var messages []Message
	for rows.Next() {
		var message Message
		var headers []byte
		if err := rows.Scan(&message.Position, &message.ID, &message.Topic, &message.Key, &headers,
			&message.Payload); err != nil {
			return nil, err
		}
		if len(headers) > 0 {
			if err := json.Unmarshal(headers, &message.Headers); err != nil {
				return nil, err
			}
		}
		messages = append(messages, message)
	}
	return messages, rows.Err()
}

func (m *Mailbox) name() string {
	if m.Name == "" {
		return "default"
	}
	return m.Name
}

func (m *Mailbox) tell(err error) {
	if m.OnError != nil {
		m.OnError(err)
	}
}

// A panic is a failure of this message: it would come again at each start.
func call(ctx context.Context, tx *sql.Tx, handler Handler, message Message) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return handler(ctx, tx, message)
}

func stateOf(err error) string {
	var stated interface{ SQLState() string }
	if errors.As(err, &stated) {
		return stated.SQLState()
	}
	return ""
}

// Nothing happened, and nobody is at fault: a conflict with another transaction, a deadlock.
func again(err error) bool {
	state := stateOf(err)
	return state == "40001" || state == "40P01"
}

// Whether an error of the database goes away by itself: the network, a server that stops or is a
// standby now, that is short of something or cancels a statement.
func passes(err error) bool {
	state := stateOf(err)
	if state == "" {
		return err != errIncomplete && !strings.Contains(err.Error(), "sql: database is closed")
	}
	for _, class := range []string{"08", "25006", "40", "53", "55", "57", "58"} {
		if strings.HasPrefix(state, class) {
			return true
		}
	}
	return false
}

// What PostgreSQL's text takes.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
}

func orDefault[T int | time.Duration](value, fallback T) T {
	if value == 0 {
		return fallback
	}
	return value
}

func sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
