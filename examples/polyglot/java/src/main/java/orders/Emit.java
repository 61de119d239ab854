package orders;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

final class Emit {
    static final ObjectMapper JSON = new ObjectMapper();

    /** The business row; its lock makes writers of one order wait for each other. */
    static ObjectNode storeOrder(Connection connection, String order, String customer, long cents)
            throws SQLException {
        try (var statement = Database.prepare(connection, """
                INSERT INTO orders (id, customer, cents) VALUES (?, ?, ?)
                ON CONFLICT (id) DO UPDATE SET cents = orders.cents + excluded.cents,
                    version = orders.version + 1 RETURNING version""", order, customer, cents);
                var row = statement.executeQuery()) {
            row.next();
            return JSON.createObjectNode().put("order_id", order).put("version", row.getInt(1))
                    .put("cents", cents);
        }
    }

    static int placeOrder(Connection connection, String order, String customer, long cents)
            throws SQLException {
        return Database.transaction(connection, () -> {
            ObjectNode placed = storeOrder(connection, order, customer, cents);
            try (var statement = Database.prepare(connection, """
                    INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
                    VALUES ('Order', ?, 'OrderPlaced', ?::jsonb)""", order, placed.toString())) {
                statement.executeUpdate();
            }
            return placed.get("version").intValue();
        });
    }

    static int run() throws SQLException, IOException {
        int refused = 0;
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Connection connection = Database.connect()) {
            for (String line; (line = lines.readLine()) != null;) {
                String[] words = line.split(" ");
                try {
                    int version =
                            placeOrder(connection, words[0], words[1], Long.parseLong(words[2]));
                    System.out.println("placed " + words[0] + " " + version);
                } catch (SQLException error) {
                    System.err.println("refused " + words[0] + " " + error.getMessage());
                    refused++;
                }
            }
        }
        return refused > 0 ? 1 : 0;
    }

    private Emit() {}
}
