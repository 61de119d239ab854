package orders;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.Executors;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;

final class Serve {
    private static final int MAX_BODY_BYTES = 65536;
    private static final int THREADS = 8;

    record Answer(int status, Map<String, String> headers, byte[] body) {
        Answer(int status, String body) {
            this(status, Map.of(), body.getBytes(UTF_8));
        }
    }

    private static String fingerprint(byte[] body) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            digest.update("POST /orders\n".getBytes(UTF_8));
            return HexFormat.of().formatHex(digest.digest(body));
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static Map<String, String> headers(String json) {
        try {
            return Emit.JSON.readValue(json, new TypeReference<Map<String, String>>() {});
        } catch (IOException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static Answer known(ResultSet claim) throws SQLException {
        return switch (claim.getString("state")) {
            case "running" -> new Answer(409, Map.of("Retry-After", "1"), new byte[0]);
            case "mismatch" -> new Answer(422, "the key was used for another request\n");
            default -> new Answer(claim.getInt("status"), headers(claim.getString("headers")),
                    claim.getBytes("body"));
        };
    }

    /** The answer to POST /orders; claim, order, event and answer commit together. */
    static Answer answer(Connection connection, String caller, String key, byte[] body,
            String order, long cents) throws SQLException {
        return Database.transaction(connection, () -> {
            int attempt;
            try (var statement = Database.prepare(connection,
                    "SELECT * FROM idempotency_claim(?, ?, ?)", caller, key, fingerprint(body));
                    var claim = statement.executeQuery()) {
                claim.next();
                if (!claim.getString("state").equals("new")) return known(claim);
                attempt = claim.getInt("attempt");
            }
            String placed = Emit.storeOrder(connection, order, caller, cents).toString();
            try (var statement = Database.prepare(connection, """
                    SELECT outbox_emit(aggregate_type => 'Order', aggregate_id => ?,
                        event_type => 'OrderPlaced', payload => ?::jsonb)""", order, placed)) {
                statement.execute();
            }
            try (var statement = Database.prepare(connection,
                    "SELECT idempotency_complete(?, ?, ?, 201, ?::json, ?)", caller, key, attempt,
                    "{\"Content-Type\": \"application/json\"}", placed.getBytes(UTF_8))) {
                statement.execute();
            }
            return new Answer(201, Map.of("Content-Type", "application/json"),
                    placed.getBytes(UTF_8));
        });
    }

    private static Answer post(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readNBytes(MAX_BODY_BYTES + 1);
        if (!exchange.getRequestMethod().equals("POST")
                || !exchange.getRequestURI().getPath().equals("/orders")) {
            return new Answer(404, "");
        }
        if (body.length > MAX_BODY_BYTES) return new Answer(413, "");
        // Whoever stands before this service has authenticated the caller.
        String caller = exchange.getRequestHeaders().getFirst("X-User");
        String key = exchange.getRequestHeaders().getFirst("Idempotency-Key");
        if (caller == null || key == null || key.isEmpty() || key.length() > 255) {
            return new Answer(400, "X-User and Idempotency-Key (up to 255 bytes) are needed\n");
        }
        JsonNode order;
        try {
            order = Emit.JSON.readTree(body);
        } catch (IOException error) {
            return new Answer(400, "not an order: " + error.getMessage() + "\n");
        }
        if (!order.path("order_id").isTextual() || !order.path("cents").canConvertToLong()
                || !order.path("cents").isIntegralNumber()) {
            return new Answer(400, "order_id (text) and cents (a whole number) are needed\n");
        }
        try (Connection connection = Database.connect()) {
            return answer(connection, caller, key, body, order.get("order_id").textValue(),
                    order.get("cents").longValue());
        } catch (SQLException error) {
            if (String.valueOf(error.getSQLState()).startsWith("23")) {
                return new Answer(422, "refused: " + error.getMessage() + "\n");
            }
            System.err.println(error);
            return new Answer(500, "rolled back; send it again with the same key\n");
        }
    }

    static void run() throws IOException {
        int port = Integer.parseInt(System.getenv("PORT"));
        HttpServer server =
                HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 0);
        server.setExecutor(Executors.newFixedThreadPool(THREADS));
        server.createContext("/", exchange -> {
            try (exchange) {
                Answer answer = post(exchange);
                answer.headers().forEach(exchange.getResponseHeaders()::set);
                exchange.sendResponseHeaders(answer.status(),
                        answer.body().length == 0 ? -1 : answer.body().length);
                if (answer.body().length > 0) exchange.getResponseBody().write(answer.body());
            }
        });
        server.start();
        System.out.println("listening " + server.getAddress().getPort());
    }

    private Serve() {}
}
