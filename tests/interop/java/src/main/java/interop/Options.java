package interop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Command-line options of the form {@code --name value}; a name may be given several times. */
final class Options {
    private final Map<String, List<String>> values = new LinkedHashMap<>();

    Options(String[] args) {
        for (int i = 0; i < args.length; i += 2) {
            if (!args[i].startsWith("--") || i + 1 == args.length) {
                throw new IllegalArgumentException("expected --name value, saw " + args[i]);
            }
            values.computeIfAbsent(args[i].substring(2), name -> new ArrayList<>()).add(args[i + 1]);
        }
    }

    /** The option's value; fails where it is missing. */
    String text(String name) {
        String value = text(name, null);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String text(String name, String otherwise) {
        List<String> all = values.get(name);
        return all == null ? otherwise : all.get(all.size() - 1);
    }

    int number(String name, int otherwise) {
        String value = text(name, null);
        return value == null ? otherwise : Integer.parseInt(value);
    }

    List<String> all(String name) {
        return values.getOrDefault(name, List.of());
    }
}
