# SPDX-License-Identifier: MIT
"""unchanged.py FOLDER [ARGUMENTS]: runs rdma-core's tests (unpacked in FOLDER/tests) as they are."""
import sys
import unittest

from lines import Lines

folder = sys.argv.pop(1)
sys.path[:0] = [folder, f"{folder}/tests"]

from args_parser import parser  # noqa: E402

parser.parse_args()

import tests  # noqa: E402

unittest.main(module=tests, testRunner=unittest.TextTestRunner(resultclass=Lines, verbosity=0))
