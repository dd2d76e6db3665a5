# SPDX-License-Identifier: MIT
"""Every check fails on a sample that breaks its rule, and passes one that keeps it."""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import check_symbols
import source_rules as rules

OPTIONS = None  # the tools' paths, set by main


def bodies(lines):
    return "".join(f"  step({i});\n" for i in range(lines))


class Text(unittest.TestCase):
    def test_spdx(self):
        self.assertEqual(rules.check_spdx("// SPDX-License-Identifier: MIT\nint a;\n"), [])
        self.assertTrue(rules.check_spdx("int a;\n"))
        self.assertTrue(rules.check_spdx("\n\n\n// SPDX-License-Identifier: MIT\n"))

    def test_layout(self):
        self.assertEqual(rules.check_layout("int a;\n", True), [])
        for bad in ("int a; \n", "\tint a;\n", "int a;", "x" * 101 + "\n"):
            with self.subTest(bad=bad):
                self.assertEqual(len(rules.check_layout(bad, True)), 1)
        table = "// clang-format off\n" + "x" * 150 + "\n// clang-format on\n"
        self.assertEqual(rules.check_layout(table, True), [])
        self.assertEqual(len(rules.check_layout(table + "x" * 150 + "\n", True)), 1)

    def test_unfinished(self):
        self.assertEqual(rules.check_unfinished("// all done\n"), [])
        for word in ("TO" + "DO", "FIX" + "ME"):
            self.assertEqual(rules.check_unfinished(f"a\n// {word}: b\n")[0][0], 2)

    def test_file_length(self):
        self.assertEqual(rules.check_file_length("\n" * 1000), [])
        self.assertTrue(rules.check_file_length("\n" * 1001))


class Functions(unittest.TestCase):
    def lengths(self, text):
        return [last - first + 1 for first, last in rules.functions(text)]

    def test_limit(self):
        long = "void f() {\n" + bodies(69) + "}\n"
        self.assertEqual(len(rules.check_function_length(long)), 1)
        self.assertEqual(rules.check_function_length("void f() {\n" + bodies(68) + "}\n"), [])

    def test_finds_functions_wherever_they_stand(self):
        for head in ("int f(int a,\n      int b) const noexcept {", "struct S { S() : a_{1}, b_(2) {",
                     "namespace a {\nnamespace {\nvoid f() {", "class C : public B {\n int f() {",
                     "template <class T>\nauto f(T t) -> decltype(t) {", "TEST(A, B) {",
                     "bool operator==(const A& a, struct sockaddr* b) {", 'extern "C" int f(void) {',
                     "struct sockaddr* f(struct in_addr a) {", "enum class E f(enum class E e) {"):
            with self.subTest(head=head):
                closing = "}" * (head.count("{") - head.count("}")) + ";\n"
                text = head + "\n" + bodies(80) + closing
                self.assertTrue(rules.check_function_length(text))

    def test_is_not_misled(self):
        table = "constexpr int kTable[] = {\n" + "  {1, 2},\n" * 100 + "};\n"
        self.assertEqual(rules.check_function_length(table), [])
        comment = "// }\nvoid f() {\n  const char* a = \"}\"; /* } */\n  char c = '}';\n" \
            "  if (a) {\n  }\n" + bodies(70) + "}\n"
        self.assertEqual(len(rules.check_function_length(comment)), 1)
        macro = "#define OPEN {\nvoid f() {\n}\nvoid g() {\n}\n"
        self.assertEqual(self.lengths(macro), [2, 2])
        self.assertEqual(self.lengths("int n = 1'000'000;\nvoid f() {\n}\n"), [2])


class Banned(unittest.TestCase):
    def problems(self, line, path):
        return rules.check_banned(line + "\n", path)

    def test_everywhere(self):
        for line in ("std::cout << 1;", "int a = rand();", "::signal(SIGINT, f);",
                     "setenv(\"A\", \"B\", 1);", "#include <iostream>", "printf(\"x\");",
                     "exit(1);", "  ::system(\"ls\");"):
            with self.subTest(line=line):
                self.assertEqual(len(self.problems(line, "src/runtime/a.cc")), 1)
                self.assertEqual(self.problems(line, "tools/airdma/a.cc"), [])

    def test_only_the_call_itself(self):
        for line in ("random();", "on_signal(1);", "// exit(1)", "snprintf(b, 1, f);",
                     "queue.signal();", "my_exit(2);", "state_->signal(x);"):
            with self.subTest(line=line):
                self.assertEqual(self.problems(line, "src/runtime/a.cc"), [])

    def test_only_the_fault_handler_takes_signals(self):
        line = "::sigaction(SIGSEGV, &ours, nullptr);"
        self.assertTrue(self.problems(line, "src/io/fd.cc"))
        self.assertEqual(self.problems(line, "src/io/fault_handler.cc"), [])
        self.assertTrue(self.problems("exit(1);", "src/io/fault_handler.cc"))

    def test_pure_layers(self):
        for line in ("#include <sys/socket.h>", "#include <mutex>", "#include <thread>",
                     "#include <ctime>", "#include <cstdio>", '#include "base/log.h"',
                     "AIRDMA_LOG_INFO(1);", "getenv(\"A\");", "std::chrono::steady_clock::now();",
                     "#include <fmt/core.h>", "thread_local int a;", "#include <unistd.h>"):
            for path in ("src/engine/iwarp/a.cc", "src/wire/a.cc", "src/model/a.cc"):
                with self.subTest(line=line, path=path):
                    self.assertTrue(self.problems(line, path))
            self.assertEqual(self.problems(line, "src/runtime/a.cc"), [])
        self.assertEqual(self.problems("#include <sys/types.h>", "src/wire/a.cc"), [])

    def test_headers_are_guarded(self):
        self.assertTrue(self.problems("int a;", "src/base/a.h"))
        self.assertEqual(self.problems("#pragma once", "src/base/a.h"), [])


class Layers(unittest.TestCase):
    TABLE = 'set(AIRDMA_ALLOWED_base "")\nset(AIRDMA_ALLOWED_wire base)\n' \
        "set(AIRDMA_ALLOWED_engine_cm base wire)\n"

    def test_table(self):
        table = rules.layer_table(self.TABLE)
        self.assertEqual(table, {"base": set(), "wire": {"base"}, "engine/cm": {"base", "wire"}})
        up = '#include "engine/cm/a.h"\n'
        self.assertEqual(len(rules.check_layers(up, "src/wire/a.cc", table)), 1)
        self.assertEqual(rules.check_layers(up, "src/engine/cm/b.cc", table), [])
        self.assertEqual(len(rules.check_layers("", "src/other/b.cc", table)), 1)

    def test_configure_stops_on_an_upward_include(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "a.cc"
            script = pathlib.Path(folder) / "check.cmake"
            script.write_text("cmake_minimum_required(VERSION 3.25)\n"
                              f"include({OPTIONS.root}/cmake/AirdmaLayer.cmake)\n"
                              f'airdma_check_includes(wire "base" "{source}")\n')
            for include, status in (("base/bytes.h", 0), ("wire/mpa.h", 0), ("io/fd.h", 1)):
                source.write_text(f'#include "{include}"\n')
                result = subprocess.run([OPTIONS.cmake, "-P", script], capture_output=True,
                                        text=True, check=False)
                self.assertEqual(result.returncode, status, result.stderr)
            self.assertIn("may not include \"io/fd.h\"", result.stderr)


class Symbols(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="airdma-tidy-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def archive(self, name, code):
        source = self.folder / f"{name}.cc"
        source.write_text(code)
        built, library = source.with_suffix(".o"), self.folder / f"lib{name}.a"
        subprocess.run([OPTIONS.cxx, "-O1", "-fPIC", "-c", source, "-o", built], check=True)
        subprocess.run([OPTIONS.ar, "rcs", library, built], check=True)
        return library

    def violations(self, *archives):
        return [name for _, _, name in check_symbols.violations(OPTIONS.nm, archives)[1]]

    def test_system_calls_are_found(self):
        for code, symbol in (
                ("#include <unistd.h>\nvoid f() { write(1, \"\", 0); }", "write"),
                ("#include <ctime>\nlong f() { return time(nullptr); }", "time"),
                ("#include <cstdlib>\nchar* f() { return getenv(\"A\"); }", "getenv"),
                ("#include <pthread.h>\nvoid f(pthread_mutex_t* m) { pthread_mutex_lock(m); }",
                 "pthread_mutex_lock"),
                ("#include <chrono>\nlong f() { return "
                 "std::chrono::steady_clock::now().time_since_epoch().count(); }",
                 "_ZNSt6chrono3_V212steady_clock3nowEv"),
                ("#include <cstdio>\nvoid f(int a) { printf(\"%d\", a); }", "printf")):
            with self.subTest(symbol=symbol):
                self.assertEqual(self.violations(self.archive("bad", code)), [symbol])

    def test_plain_code_is_clean(self):
        code = "#include <map>\n#include <string>\n#include <vector>\n#include <cstring>\n" \
            "struct B { virtual ~B() = default; };\nstruct D : B { std::vector<int> v; };\n" \
            "B* f(std::map<int, std::string>& m) {\n  m[1] += \"x\";\n  auto* d = new D;\n" \
            "  d->v.resize(m.size());\n  std::memset(d->v.data(), 0, 4 * d->v.size());\n" \
            "  return d;\n}\n"
        self.assertEqual(self.violations(self.archive("good", code)), [])

    def test_archives_may_use_each_other(self):
        user = self.archive("user", "int g();\nint f() { return g(); }")
        self.assertEqual(self.violations(user), ["_Z1gv"])
        self.assertEqual(self.violations(user, self.archive("used", "int g() { return 1; }")), [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for tool in ("cxx", "ar", "nm", "cmake", "root"):
        parser.add_argument(f"--{tool}", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
