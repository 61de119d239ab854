package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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

// Mailbox is one member that takes messages of a mailbox; start as many as you like, each its own.
// Set DB and Consumer; the zero values of the others are the defaults. Not to be changed while it
// runs, nor to be run by two goroutines.
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

	singly    int      // turns that take one message, so that a failed commit has one culprit
	conflicts inARow   // of the last message that had one
	lost      inARow   // sessions, by the last message that lost one
	owed      *failure // to be told
}

type inARow struct {
	id    string
	times int
}

func (r *inARow) count(id string) int {
	if r.id != id {
		*r = inARow{id: id}
	}
	r.times++
	return r.times
}

type failure struct {
	message Message
	cause   error
}

// As in the library: conflicts of one message that are run again at once, and sessions lost
// (outages) in a row under one message, before they count as tries of it.
const (
	maxConflicts = 20
	maxLost      = 3
	maxPause     = 5 * time.Second
)

var errIncomplete = errors.New("outbox: a Mailbox needs DB and Consumer, and a handler")

// Run takes and applies until the context is done, and then returns nil. It waits out an outage of
// the database, and returns the errors that only a person can mend: a missing right or function, a
// wrong password.
func (m *Mailbox) Run(ctx context.Context, handler Handler) error {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		some, err := m.Turn(ctx, handler)
		wait := time.Duration(0)
		switch {
		case err != nil && ctx.Err() != nil:
		case err != nil && !passes(err):
			return err
		case err != nil:
			m.tell(err)
			if pause *= 2; pause == 0 {
				pause = orDefault(m.Idle, 100*time.Millisecond)
			} else if pause > maxPause {
				pause = maxPause
			}
			wait = pause
		case !some:
			wait = orDefault(m.Idle, 100*time.Millisecond)
		}
		if err == nil {
			pause = 0
		}
		sleep(ctx, wait)
	}
	return nil
}

// Turn takes and applies once; true where there was something. A message whose handler fails or
// panics, or whose commit fails, is tried again later, its key waiting; what came before it in the
// batch comes again. An outage is an error and counts nothing, unless it comes with the same message
// more than three times in a row; a conflict (40001, 40P01) not the first twenty times. Once the
// context is done nothing more is applied, and what is under way counts as no failure.
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
	if err := m.settle(ctx, session); err != nil {
		return false, err
	}
	most := orDefault(m.Batch, 100)
	if m.singly > 0 {
		m.singly--
		most = 1
	}
	taken, applied, failed, err := m.apply(ctx, session, handler, most)
	if err == nil {
		return taken > 0, nil
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	outage := isOutage(stateOf(err)) || session.PingContext(ctx) != nil
	switch {
	case failed == nil:
		m.singly = applied
	case outage:
		m.singly += applied + 1
		if m.lost.count(failed.ID) > maxLost {
			m.owed = &failure{*failed, err}
		}
	case again(err) && m.conflicts.count(failed.ID) <= maxConflicts:
		m.singly += applied + 1
		sleep(ctx, time.Duration(m.conflicts.times)*time.Millisecond)
	default:
		m.conflicts = inARow{}
		m.owed = &failure{*failed, err}
		return true, m.settle(ctx, session)
	}
	if outage {
		return false, outageError{err}
	}
	if failed == nil && applied == 0 {
		return false, err
	}
	return true, nil
}

// Tells of the last failure, in a transaction of its own; in an outage, after it.
func (m *Mailbox) settle(ctx context.Context, session *sql.Conn) error {
	if m.owed == nil {
		return nil
	}
	message, cause := m.owed.message, m.owed.cause
	count := func(text string) error {
		_, err := session.ExecContext(ctx, `SELECT outbox_mailbox_failed($1, $2, $3, $4, $5)`,
			m.Consumer, m.name(), message.Position, text, orDefault(m.MaxAttempts, 5))
		return err
	}
	err := count(storable(cause.Error()))
	if strings.HasPrefix(stateOf(err), "22") { // the database's encoding has not all of it
		err = count(strconv.QuoteToASCII(storable(cause.Error())))
	}
	if err != nil {
		return err
	}
	m.owed = nil
	m.tell(fmt.Errorf("outbox: message %s: %w", message.ID, cause))
	return nil
}

// One transaction. `failed`: the message whose fault the error is, nil where that is not known.
func (m *Mailbox) apply(ctx context.Context, session *sql.Conn, handler Handler, most int) (
	taken, applied int, failed *Message, err error) {
	tx, err := session.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, 0, nil, err
	}
	defer tx.Rollback() // does nothing after the commit
	messages, err := m.take(ctx, tx, most)
	if err != nil {
		return 0, 0, nil, err
	}
	for i := range messages {
		if ctx.Err() != nil {
			return 0, i, nil, ctx.Err()
		}
		if err = call(ctx, tx, handler, messages[i]); err == nil {
			_, err = tx.ExecContext(ctx, `SELECT outbox_mailbox_done($1, $2, $3)`,
				m.Consumer, m.name(), messages[i].Position)
		}
		if err != nil {
			return 0, i, &messages[i], err
		}
	}
	if err = tx.Commit(); err != nil && len(messages) == 1 {
		failed = &messages[0]
	}
	return len(messages), len(messages), failed, err
}

func (m *Mailbox) take(ctx context.Context, tx *sql.Tx, most int) ([]Message, error) {
	rows, err := tx.QueryContext(ctx,
		`SELECT position, id, topic, key, headers::text, payload
		 FROM outbox_mailbox_take($1, $2, $3)`, m.Consumer, m.name(), most)
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

// The server is away, stops, starts, only reads, or is short of something.
func isOutage(state string) bool {
	return hasPrefix(state, "08", "25006", "53", "57P", "58")
}

// An error that was raised while the session was lost, whatever the handler made of it.
type outageError struct{ error }

func (o outageError) Unwrap() error { return o.error }

// Whether an error of the database goes away by itself.
func passes(err error) bool {
	if errors.As(err, &outageError{}) {
		return true
	}
	state := stateOf(err)
	if state == "" {
		return err != errIncomplete && !strings.Contains(err.Error(), "sql: database is closed")
	}
	return isOutage(state) || hasPrefix(state, "40", "55", "57")
}

func hasPrefix(text string, prefixes ...string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(text, prefix) {
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
