# SPDX-License-Identifier: MIT
"""Open MPI and MPICH: four ranks of programs/mpi_rounds.c, which compares all that arrives, over
UCX's and libfabric's use of the RoCEv2 device."""
import os
import pathlib
import subprocess
import tempfile

from framework import Failure, case, contains, equal

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "programs" / "mpi_rounds.c"
RANKS = 4
# Where nobody but root is, and where four ranks share two processors.
OPEN_MPI = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", RANKS,
            "--mca", "btl", "self", "--mca", "pmix_server_max_wait", 10]


def compiled(compiler, folder):
    program = pathlib.Path(folder) / "mpi_rounds"
    done = subprocess.run([compiler, "-O1", "-o", program, SOURCE], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise Failure(f"{compiler}: {done.stderr}")
    return program


def play(run, compiler, launcher, **variables):
    # Whoever starts as root, as containers do, has no home of its own to write into.
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(compiler, folder)
        ranks = run.start([*launcher, program], TMPDIR=folder, **variables)
        output = run.succeeds(ranks, 60)
    for rank in range(RANKS):
        contains(output, f"hello from rank {rank} of {RANKS}")
    equal(output.splitlines()[-1:], ["all right"], "the last line")


def ucx(transport):
    """UCX takes this transport alone: no rank reaches another through shared memory or TCP."""
    return {"UCX_TLS": f"{transport},self", "UCX_NET_DEVICES": "roce_lo:1"}


for one in ("rc_v", "ud_v"):
    @case(f"mpi.openmpi.{one}", needs=["mpirun.openmpi", "mpicc.openmpi"], timeout_s=120)
    def openmpi_ucx(run, transport=one):
        # Debian's configuration leaves these components out.
        play(run, "mpicc.openmpi", [*OPEN_MPI, "--mca", "pml", "ucx", "--mca", "osc", "ucx"],
             **ucx(transport))

    @case(f"mpi.mpich.{one}", needs=["mpirun.mpich", "mpicc.mpich"], timeout_s=120)
    def mpich_ucx(run, transport=one):
        play(run, "mpicc.mpich", ["mpirun.mpich", "-n", RANKS], MPIR_CVAR_NOLOCAL="1",
             **ucx(transport))
