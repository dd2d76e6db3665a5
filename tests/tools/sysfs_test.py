# SPDX-License-Identifier: MIT
"""What programs under `airdma run` find of the devices in sysfs and /dev/infiniband.

Usage: sysfs_test.py PATH-OF-AIRDMA PATH-OF-SYSFS_READER
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

AIRDMA = READER = None  # set by main

LOOK = """
import glob, json, os, pathlib
top = "/sys/class/infiniband"
devices = sorted(os.listdir(top))
print(json.dumps({
    "listdir": devices,
    "scandir": sorted(e.name for e in os.scandir(top) if e.is_dir()),
    "glob": sorted(p.split("/")[4] for p in glob.glob(top + "/*/ports/1/gid_attrs/types/0")),
    "path": sorted(p.name for p in pathlib.Path(top).iterdir() if (p / "node_guid").is_file()),
    "walk": sorted(next(os.walk(top))[1]),
    "verbs": sorted(pathlib.Path(p).read_text().strip()
                    for p in glob.glob("/sys/class/infiniband_verbs/uverbs*/ibdev")),
    "nodes": sorted(os.listdir("/dev/infiniband")),
    "fd": sorted(os.listdir(os.open(top, os.O_RDONLY)))}))
"""

def run(*command, **options):
    options.setdefault("timeout", 60)
    return subprocess.run([AIRDMA, "run", "--", *command], capture_output=True, text=True,
                          check=False, **options)


class Sysfs(unittest.TestCase):
    def test_every_way_to_read_agrees_with_the_verbs(self):
        result = run(READER)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_python(self):
        result = run(sys.executable, "-c", LOOK)
        self.assertEqual(result.returncode, 0, result.stderr)
        seen = json.loads(result.stdout)
        devices = seen["listdir"]
        self.assertTrue(any(name.endswith("_lo") for name in devices), devices)
        for way in ("scandir", "glob", "path", "walk", "verbs", "fd"):
            self.assertEqual(seen[way], devices, way)
        self.assertEqual(len(seen["nodes"]), len(devices) + 1)

    def test_programs_of_the_shell(self):
        script = ('for d in /sys/class/infiniband/*; do test -d $d && test -r $d/ports/1/state && '
                  'cat $d/ports/1/state $d/node_type; done; ls -l /sys/class/infiniband/*/ports/1')
        result = run("bash", "-c", script)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"4: ACTIVE\n[14]: (CA|RNIC)\n")

    @unittest.skipUnless(shutil.which("ibv_devinfo"), "ibverbs-utils is not installed")
    def test_ibv_devinfo(self):
        shown = run("ibv_devinfo", "-v").stdout
        guids = re.findall(r"node_guid:\s+(\S+)", shown)
        read = run("bash", "-c", "cat /sys/class/infiniband/*/node_guid").stdout.split()
        self.assertEqual(sorted(guids), sorted(read))

    def test_off_leaves_sysfs_alone(self):
        environment = dict(os.environ, AIRDMA_SYSFS="off")
        result = run(sys.executable, "-c", "import os; print(os.path.exists('/dev/infiniband'))",
                     env=environment)
        self.assertEqual(result.stdout.strip(), str(os.path.exists("/dev/infiniband")))

    def test_an_address_that_comes_and_goes(self):
        inside = ["unshare", "-rn", "--"]
        probe = subprocess.run([*inside, "ip", "link", "set", "lo", "up"], capture_output=True,
                               check=False)
        if probe.returncode != 0:
            self.skipTest("no network namespaces, or no ip")
        script = f"ip link set lo up; exec {AIRDMA} run -- {READER} watch"
        program = subprocess.Popen([*inside, "sh", "-c", script], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(program.wait, 30)
        self.addCleanup(program.stdin.close)
        self.addCleanup(program.stdout.close)

        def gids():
            program.stdin.write("\n")
            program.stdin.flush()
            lines = []
            for line in program.stdout:
                if line.startswith(("end", "line")):
                    break
                lines.append(line)
            return "".join(lines)

        def change(*words):
            subprocess.run(["nsenter", "-U", "-n", "--preserve-credentials", "-t",
                            str(program.pid), "ip", "addr", *words, "10.9.8.7/32", "dev", "lo"],
                           check=True)

        gid = "ffff:0a09:0807"
        self.assertNotIn(gid, gids())
        change("add")
        self.assertIn(gid, gids())
        change("del")
        self.assertNotIn(gid, gids())

    def test_a_killed_program_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ, TMPDIR=folder, XDG_RUNTIME_DIR=folder, HOME=folder)
            program = subprocess.Popen(
                [AIRDMA, "run", "--", sys.executable, "-c",
                 "import os; f = [open('/sys/class/infiniband_verbs/abi_version'), os.scandir("
                 "'/sys/class/infiniband')]; print('there', flush=True); input()"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
            self.assertEqual(program.stdout.readline(), "there\n")
            program.kill()
            program.communicate()
            self.assertEqual(os.listdir(folder), [])
        left = [p for p in pathlib.Path("/dev/shm").glob("*airdma-sysfs*")]
        self.assertEqual(left, [])


if __name__ == "__main__":
    READER = sys.argv.pop()
    AIRDMA = sys.argv.pop()
    unittest.main()
