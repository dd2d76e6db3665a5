# SPDX-License-Identifier: MIT
"""The table of bench/programs: its arithmetic, how it reads other programs' output, and one cheap
row of it from real programs. No figure is judged. Usage: bench_test.py BENCH AIRDMA BINARIES
"""
import os
import re
import subprocess
import sys
import unittest

BENCH, AIRDMA, BINARIES = sys.argv[1:4]
sys.path.insert(0, BENCH)

import contenders  # noqa: E402
import rows  # noqa: E402
import table  # noqa: E402
from samples import Goal, Line, Sample, evaluate, probe_limit, spread  # noqa: E402


def near(value):
    return Sample(value, 60)


def far(value):
    return Sample(value, 900)


LINE = Line("row", "a", "us", "b", Goal("<= 1.15"))


class Ratios(unittest.TestCase):
    def test_divides_within_a_round(self):
        rounds = [{"a": near(2), "b": near(1)}, {"a": near(30), "b": near(10)},
                  {"a": near(4), "b": near(4)}]
        result = evaluate(LINE, rounds, 100, {})
        self.assertEqual(result.ratios, [2, 3, 1])
        self.assertIs(result.met(), False)

    def test_sets_rounds_with_a_far_probe_aside(self):
        rounds = [{"a": near(1), "b": near(1)}] * 3 + [{"a": near(9), "b": far(1)}]
        result = evaluate(LINE, rounds, 100, {})
        self.assertEqual(result.ratios, [1, 1, 1])
        self.assertEqual(result.rounds, 4)
        self.assertFalse(result.all_counted)
        self.assertIs(result.met(), True)

    def test_counts_all_when_too_few_are_good(self):
        rounds = [{"a": near(1), "b": near(1)}] * 2 + [{"a": far(3), "b": far(1)}] * 3
        result = evaluate(LINE, rounds, 100, {})
        self.assertEqual(len(result.ratios), 5)
        self.assertTrue(result.all_counted)
        self.assertIn("5/5*", table.render([result]))

    def test_leaves_out_a_round_that_is_not_whole(self):
        result = evaluate(LINE, [{"a": near(1)}, {"a": near(2), "b": near(1)}], 100, {})
        self.assertEqual(result.ratios, [2])

    def test_says_why_a_row_did_not_run(self):
        result = evaluate(LINE, [], 100, {"b": "x is not installed"})
        self.assertIsNone(result.met())
        self.assertIn("not run: x is not installed", table.render([result]))

    def test_judges_a_value_without_a_peer(self):
        line = Line("ticks", "a", "", goal=Goal("= 0"))
        self.assertIs(evaluate(line, [{"a": near(0)}], 100, {}).met(), True)
        self.assertIs(evaluate(line, [{"a": near(1)}], 100, {}).met(), False)

    def test_probe_limit_is_relative_where_no_core_is_near(self):
        self.assertEqual(probe_limit([60, 800]), 100)
        self.assertEqual(probe_limit([400, 800]), 600)
        self.assertEqual(probe_limit([]), 100)

    def test_probe_limit_ignores_a_lone_low_value(self):
        self.assertEqual(probe_limit([25] + [400] * 19), 600)

    def test_spread(self):
        self.assertEqual(spread([3, 1, 200]), "3.00 (1.00-200)")
        self.assertEqual(spread([12.34]), "12.3")

    def test_markdown_has_a_column_for_each_title(self):
        result = evaluate(LINE, [{"a": near(1), "b": near(1)}], 100, {})
        lines = table.render([result], as_markdown=True).splitlines()
        self.assertEqual({line.count("|") for line in lines}, {len(table.TITLES) + 1})


class Readers(unittest.TestCase):
    def test_perftest_latency(self):
        out = " #bytes #iterations t_min t_max t_typical\n 64 5000 19.91 10015.58 26.40 \t 75.00\n"
        self.assertEqual(contenders.perftest_value(out, contenders.Perftest.TYPICAL_US), 26.40)

    def test_perftest_bandwidth(self):
        out = " #bytes #iterations BW\n 1048576    1500     44.75    6.51   \t\t   0.000776\n"
        self.assertEqual(contenders.perftest_value(out, contenders.Perftest.AVERAGE_GBIT), 6.51)

    def test_perftest_without_a_result(self):
        with self.assertRaises(contenders.Failed):
            contenders.perftest_value("Couldn't connect\n", 3)

    def test_ucx(self):
        out = "|  Test  | # iterations |\n  200000  0.344  2.308  2.308  26.44  26.44  433203  433100\n"
        self.assertEqual(contenders.ucx_rate(out), 433100)

    def test_iperf3(self):
        out = '{"end": {"sum_received": {"bits_per_second": 16e9}}}'
        self.assertEqual(contenders.iperf3_gigabytes(out), 2)
        with self.assertRaises(contenders.Failed):
            contenders.iperf3_gigabytes('{"error": "refused"}')

    def test_cmtime(self):
        out = ("connecting\nstep              total ms     max ms     min us  us / conn\n"
               "create id    :       13.40      12.17       0.00      13.40\n"
               "resolve route:        1.60       1.06       4.00       1.81\n")
        self.assertAlmostEqual(contenders.cmtime_seconds(out), 0.015)

    def test_idle(self):
        out = "1000 queue pairs idle for 10 s: 0 CPU ticks, 2 wake-ups, 28.5 KiB each\n"
        self.assertEqual(rows.idle_figures(out), [0, 2, 28.5])

    def test_absent_programs(self):
        with self.assertRaises(contenders.Missing):
            contenders.Perftest(AIRDMA, "ib_no_such_program -s 1", 3)


class Programs(unittest.TestCase):
    def compare(self, *arguments):
        return subprocess.run(
            [sys.executable, "-B", os.path.join(BENCH, "compare.py"), "--airdma", AIRDMA, "--bin",
             BINARIES, *arguments], capture_output=True, text=True, timeout=100, check=False)

    def test_a_row_has_figures(self):
        done = self.compare("--rows", "latency", "--rounds", "1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        row = next(line for line in done.stdout.splitlines() if line.startswith("64 B SEND"))
        if "not run" in row:
            self.skipTest(row)  # perftest is not installed
        self.assertRegex(row, r"\s[\d.]+ +[\d.]+ +us +[\d.]+ +<= 1\.15 +(yes|no) +1/1[*]?$")

    def test_connections_of_the_tcp_program(self):
        done = subprocess.run([os.path.join(BINARIES, "bench_tcp_peer"), "connections", "20"],
                              capture_output=True, text=True, timeout=100, check=True)
        self.assertTrue(re.fullmatch(r"[\d.]+\n", done.stdout) and float(done.stdout) > 0)

    def test_refuses_an_unknown_row(self):
        done = self.compare("--rows", "speed")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no rows 'speed'", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
