# SPDX-License-Identifier: MIT
"""The rules every source file keeps, each a function from text to the problems found.

A problem is (line, message). check_sources.py applies them to the project; tidy_test.py feeds
each a sample that breaks it.
"""
import re

FUNCTION_LINES = 70
FILE_LINES = 1000
LINE_COLUMNS = 100

# Words for unfinished work, written so that this file does not contain them.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")

SIGNAL_CALL = r"(?<![\w.>:])(::|std::)?(signal|sigaction|sigset)\s*\("
# The one handler there is: docs/decisions/0005-fault-handler.md.
FAULT_HANDLER = "src/io/fault_handler.cc"

BANNED_EVERYWHERE = [
    (r"\bstd::(cout|cerr|clog|endl)\b", "a library prints nothing"),
    (r"#\s*include\s*<iostream>", "a library prints nothing; it costs a static initializer too"),
    (r"(?<![\w.>:])(::|std::)?(printf|puts|putchar|perror)\s*\(", "a library prints nothing"),
    (r"(?<![\w.>:])(::|std::)?s?rand\s*\(", "keys come from the kernel, tests from a seed"),
    (SIGNAL_CALL, "signals belong to the program"),
    (r"(?<![\w.>:])(::|std::)?(setenv|putenv|unsetenv|clearenv)\s*\(",
     "the environment belongs to the program"),
    (r"(?<![\w.>:])(::|std::)?(setlocale|umask|chdir)\s*\(", "it belongs to the program"),
    (r"(?<![\w.>:])(::|std::)?(exit|_exit|quick_exit|system)\s*\(", "the process is the program's"),
]

# Engines, wire and model have no input, output, time, thread or lock of their own.
PURE_LAYERS = ("src/engine/", "src/wire/", "src/model/")
BANNED_IN_PURE_LAYERS = [
    (r"#\s*include\s*<(sys/(?!types\.h)|netinet/|net/|arpa/|unistd\.h|fcntl\.h|poll\.h|netdb\.h)",
     "no system interface"),
    (r"#\s*include\s*<(thread|mutex|shared_mutex|condition_variable|semaphore|barrier|latch|future"
     r"|stop_token|pthread\.h|semaphore\.h)>", "no thread, no lock"),
    (r"#\s*include\s*<(ctime|time\.h)>", "no clock: time is a parameter"),
    (r"#\s*include\s*<(cstdio|stdio\.h|iostream|fstream|syslog\.h|print|fmt/)", "no output"),
    (r"#\s*include\s*\"base/(log|process_global|spin_lock)\.h\"", "no log, no lock"),
    (r"\bAIRDMA_LOG\w*", "no log"),
    (r"\b(secure_)?getenv\s*\(", "no environment"),
    (r"\b(system|steady|high_resolution)_clock\b|\bclock_gettime\b|\bgettimeofday\b",
     "no clock: time is a parameter"),
    (r"\bthread_local\b", "no thread"),
]


def blank(text):
    """The text with all but its line ends blanked."""
    return "".join(c if c == "\n" else " " for c in text)


def strip_comments(text, strings=False):
    """C or C++ text with comments blanked, and with `strings` the insides of literals as well."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.DOTALL)

    def replace(match):
        token = match.group(0)
        if token.startswith("/"):
            return blank(token)
        return token[0] + blank(token[1:-1]) + token[-1] if strings else token

    return pattern.sub(replace, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_spdx(text):
    if any("SPDX-License-Identifier: MIT" in line for line in text.splitlines()[:3]):
        return []
    return [(1, "no SPDX line")]


def check_layout(text, code):
    problems = []
    fenced = False  # a table that clang-format leaves alone may be as wide as it needs
    for number, line in enumerate(text.split("\n"), 1):
        fenced = (fenced or "clang-format off" in line) and "clang-format on" not in line
        if line != line.rstrip():
            problems.append((number, "space at the end of the line"))
        if code and "\t" in line:
            problems.append((number, "tab"))
        if code and len(line) > LINE_COLUMNS and not fenced:
            problems.append((number, f"{len(line)} columns, the limit is {LINE_COLUMNS}"))
    if text and not text.endswith("\n"):
        problems.append((text.count("\n") + 1, "no line end at the end of the file"))
    return problems


def check_unfinished(text):
    return [(line_of(text, match.start()), f"unfinished work: {match.group(0)}")
            for match in UNFINISHED.finditer(text)]


def check_file_length(text):
    lines = text.count("\n")
    return [(lines, f"{lines} lines, the limit is {FILE_LINES}")] if lines > FILE_LINES else []


def check_banned(text, path):
    """`path` is relative to the project: it says which rules hold."""
    problems = []
    code = strip_comments(text, strings=False)
    rules = list(BANNED_EVERYWHERE) if path.startswith("src/") else []
    if path.startswith(PURE_LAYERS):
        rules += BANNED_IN_PURE_LAYERS
    if path == FAULT_HANDLER:
        rules = [rule for rule in rules if rule[0] != SIGNAL_CALL]
    for pattern, why in rules:
        for match in re.finditer(pattern, code):
            problems.append((line_of(code, match.start()), f"{match.group(0).strip()}: {why}"))
    if path.endswith(".h") and "#pragma once" not in code and "#ifndef" not in code:
        problems.append((1, "header without #pragma once"))
    return problems


CONTAINER = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")


def functions(text):
    """(first line, last line) of each outermost function body in C or C++ text.

    A block is a function when it is neither a namespace, a type nor an initializer. That takes
    the braces of member initializers for functions too, which are short and so do no harm.
    """
    code = strip_comments(text, strings=True)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: blank(m.group(0)), code,
                  flags=re.MULTILINE)
    stack = []  # kinds of the open blocks
    head = 0  # where the text in front of the next brace begins
    start = 0
    found = []
    for position, char in enumerate(code):
        if char == ";" and "function" not in stack:
            head = position + 1
        elif char == "{":
            before = code[head:position]
            if "function" in stack:
                kind = "inner"
            elif re.search(r"=\s*$", before):
                kind = "initializer"
            elif CONTAINER.search(before) and not re.search(r"\)\s*(const|noexcept|override|\s)*$",
                                                            before):
                kind = "container"
            elif "initializer" in stack:
                kind = "initializer"
            else:
                kind = "function"
                start = head + len(before) - len(before.lstrip())
            stack.append(kind)
            if kind != "inner":
                head = position + 1
        elif char == "}" and stack:
            if stack.pop() == "function":
                found.append((line_of(code, start), line_of(code, position)))
            if "function" not in stack:
                head = position + 1
    return found


def check_function_length(text):
    return [(first, f"function of {last - first + 1} lines, the limit is {FUNCTION_LINES}")
            for first, last in functions(text) if last - first + 1 > FUNCTION_LINES]


def layer_table(cmake_text):
    """{layer: allowed layers} of cmake/AirdmaLayer.cmake, names with slashes."""
    table = {}
    for name, allowed in re.findall(r"set\(AIRDMA_ALLOWED_(\w+)\s+([^)]*)\)", cmake_text):
        layer = re.sub(r"^engine_", "engine/", name)
        table[layer] = set(allowed.replace('"', "").split())
    return table


def check_layers(text, path, table):
    """Includes of src/<layer>/<file> against the table."""
    layer = path.removeprefix("src/").rpartition("/")[0]
    if layer not in table:
        return [(1, f"src/{layer} is not in the layer table")]
    problems = []
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', text, re.MULTILINE):
        target = match.group(1).rpartition("/")[0]
        if target != layer and target not in table[layer]:
            problems.append((line_of(text, match.start()),
                             f'{layer} may not include "{match.group(1)}"'))
    return problems
