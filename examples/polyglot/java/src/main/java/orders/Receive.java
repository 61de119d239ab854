package orders;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;

import com.fasterxml.jackson.databind.JsonNode;

final class Receive {
    private record Message(long position, byte[] payload) {}

    /** The message that is under way. */
    private static Message current;

    private static List<Message> take(Connection connection) throws SQLException {
        List<Message> messages = new ArrayList<>();
        try (var statement = Database.prepare(connection,
                "SELECT position, payload FROM outbox_mailbox_take('billing', 'default', 100)");
                var rows = statement.executeQuery()) {
            while (rows.next()) messages.add(new Message(rows.getLong(1), rows.getBytes(2)));
        }
        return messages;
    }

    private static String bill(Connection connection, Message message) throws SQLException {
        JsonNode event;
        try {
            event = Emit.JSON.readTree(message.payload());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        String order = event.required("order_id").textValue();
        int version = event.required("version").intValue();
        try (var invoice = Database.prepare(connection, """
                INSERT INTO invoices (order_id, version, cents) VALUES (?, ?, ?)
                ON CONFLICT (order_id) DO UPDATE SET version = excluded.version,
                    cents = invoices.cents + excluded.cents""",
                order, version, event.required("cents").longValue());
                var done = Database.prepare(connection,
                        "SELECT outbox_mailbox_done('billing', 'default', ?)", message.position())) {
            invoice.executeUpdate();
            done.execute();
        }
        return order + " " + version;
    }

    /** Takes and applies in one transaction; false where nothing was there. */
    static boolean billFromMailbox(Connection connection) throws SQLException {
        current = null;
        List<String> billed = new ArrayList<>();
        try {
            Database.transaction(connection, () -> {
                for (Message message : take(connection)) {
                    current = message;
                    billed.add(bill(connection, message));
                }
                return null;
            });
        } catch (SQLException | RuntimeException error) {
            String state = error instanceof SQLException refused ? refused.getSQLState() : "";
            if ("40001".equals(state) || "40P01".equals(state)) return true; // again
            if (current == null) throw error;
            // All of it was rolled back; the others come again at once, this one and its key later.
            Database.transaction(connection, () -> {
                try (var failed = Database.prepare(connection,
                        "SELECT outbox_mailbox_failed('billing', 'default', ?, ?)",
                        current.position(), error.toString())) {
                    return failed.execute();
                }
            });
            System.err.println("failed " + current.position() + " " + error);
            return true;
        }
        for (String line : billed) System.out.println("applied " + line);
        return !billed.isEmpty();
    }

    static void run() throws Exception {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            main.interrupt();
            try {
                main.join();
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }));
        try (Connection connection = Database.connect()) {
            while (!main.isInterrupted()) {
                if (!billFromMailbox(connection)) Thread.sleep(100);
            }
        } catch (InterruptedException stopped) {
            // SIGTERM: what was not committed comes again.
        }
    }

    private Receive() {}
}
