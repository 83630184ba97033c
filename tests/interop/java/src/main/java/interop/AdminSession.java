package interop;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Many {@code mqadmin} commands in one process: a JSON list of words a line in, what the command printed a line out. */
final class AdminSession {
    private AdminSession() {
    }

    static void run() throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        Lines.print("ready", true);
        Lines.flush();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = JSON.parseArray(line).toArray(String[]::new);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream sink = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(sink);
            System.setErr(sink);
            try {
                MQAdminStartup.main0(words, null);
            } catch (Throwable error) {
                error.printStackTrace(sink);
            } finally {
                System.setOut(out);
                System.setErr(err);
            }
            sink.flush();
            Lines.print("out", printed.toString(StandardCharsets.UTF_8));
            Lines.flush();
        }
    }
}
