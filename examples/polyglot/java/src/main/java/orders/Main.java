package orders;

/** Orders and their billing, in Java; the folder of the examples says what the commands do. */
public final class Main {
    public static void main(String[] arguments) throws Exception {
        switch (arguments.length == 1 ? arguments[0] : "") {
            case "emit" -> System.exit(Emit.run());
            case "consume" -> Consume.run();
            case "receive" -> Receive.run();
            case "serve" -> Serve.run();
            default -> {
                System.err.println("usage: orders emit|consume|receive|serve");
                System.exit(2);
            }
        }
    }
}
