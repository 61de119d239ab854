package orders;

import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.Properties;

final class Database {
    interface Work<T> {
        T run() throws SQLException;
    }

    /** DATABASE_URL as the other programs have it: postgresql://user:password@host:port/name. */
    static Connection connect() throws SQLException {
        URI url = URI.create(System.getenv("DATABASE_URL"));
        String port = url.getPort() < 0 ? "" : ":" + url.getPort();
        String[] user = url.getUserInfo().split(":", 2);
        Properties properties = new Properties();
        properties.setProperty("user", user[0]);
        if (user.length > 1) properties.setProperty("password", user[1]);
        Connection connection = DriverManager.getConnection(
                "jdbc:postgresql://" + url.getHost() + port + url.getPath(), properties);
        connection.setAutoCommit(false);
        return connection;
    }

    /** Commits what `work` does, or rolls it back where it fails. */
    static <T> T transaction(Connection connection, Work<T> work) throws SQLException {
        try {
            T result = work.run();
            connection.commit();
            return result;
        } catch (SQLException | RuntimeException error) {
            connection.rollback();
            throw error;
        }
    }

    static PreparedStatement prepare(Connection connection, String sql, Object... values)
            throws SQLException {
        PreparedStatement statement = connection.prepareStatement(sql);
        for (int i = 0; i < values.length; i++) statement.setObject(i + 1, values[i]);
        return statement;
    }

    private Database() {}
}
