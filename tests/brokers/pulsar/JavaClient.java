// What Pulsar's own Java client says, and does by itself: what the Python one does not tell.
//   JavaClient URL TOKEN read TOPIC COUNT   what the topic has, a JSON object a line
//   JavaClient URL TOKEN place TOPIC KEY... publishes a message of each key; prints its partition

import java.util.Base64;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;

public class JavaClient {
    static String encode(byte[] bytes) {
        return bytes == null ? "null" : '"' + Base64.getEncoder().encodeToString(bytes) + '"';
    }

    static String encode(String text) {
        return encode(text.getBytes(java.nio.charset.StandardCharsets.UTF_8));
    }

    static void show(Message<byte[]> message) {
        StringBuilder headers = new StringBuilder();
        for (Map.Entry<String, String> header : message.getProperties().entrySet()) {
            headers.append(headers.length() > 0 ? ", " : "")
                    .append("[" + encode(header.getKey()) + ", " + encode(header.getValue()) + "]");
        }
        String key = message.hasKey() ? encode(message.getKeyBytes()) : "null";
        System.out.println("{\"key\": " + key + ", \"value\": " + encode(message.getData())
                + ", \"headers\": [" + headers + "]}");
    }

    static void read(PulsarClient client, String topic, int count) throws Exception {
        Set<String> ids = new HashSet<>();
        try (Reader<byte[]> reader =
                client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            while (ids.size() < count || reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(60, TimeUnit.SECONDS);
                if (message == null) return;
                ids.add(message.getProperty("id"));
                show(message);
            }
        }
    }

    static void place(PulsarClient client, String topic, String[] keys) throws Exception {
        try (Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            for (String key : keys) {
                MessageId id = producer.newMessage().key(key).value(new byte[0]).send();
                System.out.println(((MessageIdAdv) id).getPartitionIndex());
            }
        }
    }

    public static void main(String[] words) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(words[0])
                .authentication(AuthenticationFactory.token(words[1])).build()) {
            if (words[2].equals("read")) {
                read(client, words[3], Integer.parseInt(words[4]));
            } else {
                place(client, words[3], java.util.Arrays.copyOfRange(words, 4, words.length));
            }
        }
        System.exit(0);
    }
}
