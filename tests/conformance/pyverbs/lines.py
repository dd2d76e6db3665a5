# SPDX-License-Identifier: MIT
"""Each outcome in one line, for whoever reads the reasons: "name: ok", "name: skipped: why"."""
import unittest


class Lines(unittest.TextTestResult):
    def line(self, test, outcome):
        print(f"{test.id()}: {outcome}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.line(test, "ok")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line(test, f"skipped: {reason}")

    def addError(self, test, err):
        super().addError(test, err)
        self.line(test, f"ERROR: {err[1]}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line(test, f"FAILED: {err[1]}")
