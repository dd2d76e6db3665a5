# SPDX-License-Identifier: MIT
"""The airdma command as a launcher: what it adds to a program's world, and that it adds no more.

Runs a copy of the command in a tree of its own whose libraries are empty files: what is tested
here never loads them. Usage: command_test.py PATH-OF-AIRDMA
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

COMMAND = None  # path of the command under test, set by main

SHOW = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"


class Tree(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="airdma-command-"))
        self.addCleanup(shutil.rmtree, self.root)
        (self.root / "bin").mkdir()
        self.libraries = self.root / "lib" / "airdma"
        self.libraries.mkdir(parents=True)
        self.airdma = shutil.copy2(COMMAND, self.root / "bin" / "airdma")
        # Real (empty) shared objects under names nobody loads would be more work than use:
        # python3 and sh below need neither library.
        for name in ("libibverbs.so.1", "librdmacm.so.1"):
            (self.libraries / name).touch()
        self.environment = {k: v for k, v in os.environ.items()
                            if k not in ("LD_LIBRARY_PATH", "AIRDMA_TRACE")}

    def call(self, *arguments, **options):
        options.setdefault("env", self.environment)
        return subprocess.run([self.airdma, *arguments], capture_output=True, text=True,
                              timeout=60, check=False, **options)

    def shown(self, *arguments, **options):
        result = self.call(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)


class Run(Tree):
    def test_sets_the_library_path_and_nothing_else(self):
        environment, arguments = self.shown("run", "--", sys.executable, "-c", SHOW, "a b", "--")
        expected = dict(self.environment, LD_LIBRARY_PATH=str(self.libraries))
        for volatile in ("_", "LC_CTYPE"):
            environment.pop(volatile, None)
            expected.pop(volatile, None)
        self.assertEqual(environment, expected)
        self.assertEqual(arguments, ["a b", "--"])

    def test_keeps_an_old_library_path(self):
        env = dict(self.environment, LD_LIBRARY_PATH="/x:/y")
        environment, _ = self.shown("run", "--", sys.executable, "-c", SHOW, env=env)
        self.assertEqual(environment["LD_LIBRARY_PATH"], f"{self.libraries}:/x:/y")
        env["LD_LIBRARY_PATH"] = ""
        environment, _ = self.shown("run", "--", sys.executable, "-c", SHOW, env=env)
        self.assertEqual(environment["LD_LIBRARY_PATH"], str(self.libraries))

    def test_preloads_what_answers_for_sysfs(self):
        library = self.libraries / "libairdma-sysfs.so"
        library.touch()  # too short to be loaded, which the loader says and nothing more
        def preloaded(**more):
            environment, _ = self.shown("run", "--", sys.executable, "-c", SHOW,
                                        env=dict(self.environment, **more))
            return environment.get("LD_PRELOAD")
        self.environment.pop("LD_PRELOAD", None)
        # A sanitized command wants its own library to be the first.
        options = self.environment.get("ASAN_OPTIONS", "")
        self.environment["ASAN_OPTIONS"] = f"{options}:verify_asan_link_order=0".lstrip(":")
        self.assertEqual(preloaded(), str(library))
        self.assertEqual(preloaded(LD_PRELOAD=str(library)), str(library))
        self.assertEqual(preloaded(LD_PRELOAD="libm.so.6"), f"libm.so.6:{library}")
        self.assertIsNone(preloaded(AIRDMA_SYSFS="off"))

    def test_takes_a_command_without_separator(self):
        _, arguments = self.shown("run", sys.executable, "-c", SHOW, "-v", "--", "--help")
        self.assertEqual(arguments, ["-v", "--", "--help"])

    def test_status_and_streams_are_the_programs(self):
        result = self.call("run", "--", "sh", "-c", "cat; echo err >&2; exit 7", input="in")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (7, "in", "err\n"))

    def test_becomes_the_program(self):
        process = subprocess.Popen([self.airdma, "run", "--", "sh", "-c", "echo $$; exec cat"],
                                   stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
                                   env=self.environment)
        self.assertEqual(int(process.stdout.readline()), process.pid)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), -signal.SIGTERM)
        process.stdin.close()
        process.stdout.close()

    def test_open_descriptors_are_the_callers(self):
        show = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd')))"
        direct = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True,
                                check=True)
        self.assertEqual(self.call("run", "--", sys.executable, "-c", show).stdout, direct.stdout)

    def test_says_why_a_program_cannot_run(self):
        result = self.call("run", "--", "no-such-program")
        self.assertEqual(result.returncode, 127)
        self.assertIn("no-such-program: program not found", result.stderr)
        result = self.call("run", "--", str(self.root))
        self.assertEqual(result.returncode, 126)
        self.assertIn("Permission denied", result.stderr)

    def test_says_that_a_name_is_empty(self):
        result = self.call("run", "--", "")
        self.assertEqual(result.returncode, 127)
        self.assertIn("name of the program is empty", result.stderr)
        result = self.call("trace", "-o", "", "--", "true")
        self.assertEqual(result.returncode, 125)
        self.assertIn("name of the output file is empty", result.stderr)

    def test_names_the_word_that_it_does_not_know(self):
        for word in ("fly", "--fly", "help", "version", "-x", ""):
            with self.subTest(word=word):
                result = self.call(word)
                self.assertEqual((result.returncode, result.stdout), (125, ""))
                self.assertIn(f"'{word}'", result.stderr)

    def test_needs_a_program(self):
        for arguments in (("run",), ("run", "--"), ("trace", "--"), (), ("fly",)):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.call(*arguments).returncode, 125)

    def test_says_when_the_libraries_are_missing(self):
        (self.libraries / "librdmacm.so.1").unlink()
        for command in ("run", "trace"):
            result = self.call(command, "--", "true")
            self.assertEqual(result.returncode, 125)
            self.assertEqual(result.stderr.count("librdmacm.so.1"), 1)
            self.assertIn("bin/airdma and lib/airdma side by side", result.stderr)

    def test_works_through_a_link(self):
        link = self.root / "link"
        link.symlink_to(self.airdma)
        self.airdma = str(link)
        environment, _ = self.shown("run", "--", sys.executable, "-c", SHOW)
        self.assertEqual(environment["LD_LIBRARY_PATH"], str(self.libraries))


class Trace(Tree):
    def test_names_the_file_absolutely_and_replaces_it(self):
        (self.root / "t.pcapng").write_text("old")
        result = self.call("trace", "-o", "t.pcapng", "--", sys.executable, "-c", SHOW,
                           cwd=self.root)
        environment, _ = json.loads(result.stdout)
        path = self.root / "t.pcapng"
        self.assertEqual(environment["AIRDMA_TRACE"], str(path))
        self.assertEqual(path.read_bytes()[:4], b"\x0a\x0d\x0d\x0a")
        self.assertIn("0 frames", result.stderr)

    def test_status_and_death_are_the_programs(self):
        output = str(self.root / "t.pcapng")
        self.assertEqual(self.call("trace", "-o", output, "--", "sh", "-c", "exit 9").returncode, 9)
        self.assertEqual(
            self.call("trace", "-o", output, "--", "sh", "-c", "kill -KILL $$").returncode,
            -signal.SIGKILL)
        self.assertEqual(self.call("trace", "-o", output, "--", "no-such-program").returncode, 127)

    def test_a_mistyped_program_leaves_the_file_alone(self):
        output = self.root / "t.pcapng"
        output.write_text("yesterday's")
        for program, status in (("no-such-program", 127), (str(output), 126)):
            result = self.call("trace", "-o", str(output), "--", program)
            self.assertEqual(result.returncode, status)
            self.assertEqual(output.read_text(), "yesterday's")
            self.assertNotIn("frames", result.stderr)

    def test_passes_signals_on(self):
        script = "trap 'echo got it; exit 3' USR1; echo ready; while :; do read x || :; done"
        process = subprocess.Popen(
            [self.airdma, "trace", "-o", str(self.root / "t.pcapng"), "--", "sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=self.environment)
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGUSR1)
        output, _ = process.communicate(timeout=60)
        self.assertEqual((process.returncode, output), (3, "got it\n"))

    def test_says_when_the_working_directory_is_gone(self):
        gone = self.root / "gone"
        gone.mkdir()
        command = 'rmdir "$PWD"; exec "$0" trace -o t.pcapng -- true'
        result = subprocess.run(["sh", "-c", command, self.airdma], capture_output=True, text=True,
                                timeout=60, check=False, cwd=gone, env=self.environment)
        self.assertEqual(result.returncode, 125)
        self.assertIn("t.pcapng", result.stderr)

    def test_says_when_the_file_cannot_be_made(self):
        result = self.call("trace", "-o", str(self.root / "none" / "t.pcapng"), "--", "true")
        self.assertEqual(result.returncode, 125)
        self.assertIn("No such file", result.stderr)


class Help(Tree):
    def test_each_command_has_help(self):
        for command in ((), ("run",), ("trace",), ("devices",), ("doctor",)):
            with self.subTest(command=command):
                result = self.call(*command, "--help")
                self.assertEqual(result.returncode, 0)
                self.assertIn("--help", result.stdout)
                if command in (("run",), ("trace",)):
                    self.assertRegex(result.stdout, r"Usage: airdma \w+( \[OPTIONS\])? \[--\] CMD")
        self.assertRegex(self.call("--version").stdout, r"^airdma \d+\.\d+\.\d+\n$")


if __name__ == "__main__":
    COMMAND = sys.argv.pop(1)
    unittest.main(verbosity=2)
