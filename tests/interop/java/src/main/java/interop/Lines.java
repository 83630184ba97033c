package interop;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** Writes one JSON object a line; safe from any thread. */
final class Lines {
    private static final PrintStream OUT = new PrintStream(
        new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, StandardCharsets.UTF_8);

    private Lines() {
    }

    /** Prints {@code pairs} (name, value, name, value, ...) as one object. */
    static void print(Object... pairs) {
        Map<String, Object> object = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            object.put((String) pairs[i], pairs[i + 1]);
        }
        String line = JSON.toJSONString(object);
        synchronized (OUT) {
            OUT.println(line);
        }
    }

    static void flush() {
        synchronized (OUT) {
            OUT.flush();
        }
    }
}
