package interop;

import java.util.Arrays;

/**
 * Command-line programs on the unmodified Apache RocketMQ Java client. Each prints one JSON object a line on standard
 * output; the tests read those lines and judge. Logs of the client go to files under the working directory.
 *
 * <pre>
 * produce --namesrv A --topic T [--mode sync|async|oneway|batch|steady [--pause ms]] [--count N] [--first N] [--size B]
 *         [--batch N] [--tags a,b] [--keys prefix] [--prop name=value]... [--body base64]
 * consume --namesrv A --topic T --group G [--tags expr] [--expect N] [--timeout s] [--settle ms] [--threads N]
 *         [--batch N] [--max-reconsume N] [--fail always|first] [--delay-level N] [--from first|last|yyyyMMddHHmmss]
 *         [--model broadcast] [--instance name] [--pause ms] [--orderly true [--suspend ms]]
 * lite    --namesrv A --topic T --group G [--assign first|offset] [--expect N] [--timeout s]
 * admin   ARGS of mqadmin
 * admins  many of them: see {@link AdminSession}
 * </pre>
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) {
        String command = args.length == 0 ? "" : args[0];
        String[] rest = args.length == 0 ? args : Arrays.copyOfRange(args, 1, args.length);
        try {
            run(command, rest);
        } catch (Throwable failed) {
            // threads of the client would keep the process alive
            failed.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private static void run(String command, String[] rest) throws Exception {
        switch (command) {
            case "produce" -> Produce.run(new Options(rest));
            case "consume" -> Consume.run(new Options(rest));
            case "admins" -> AdminSession.run();
            case "lite" -> Lite.run(new Options(rest));
            case "admin" -> org.apache.rocketmq.tools.command.MQAdminStartup.main(rest);
            default -> {
                System.err.println("usage: produce|consume|lite|admin|admins ...");
                System.exit(2);
            }
        }
    }
}
