# SPDX-License-Identifier: MIT
"""A Linux kernel with rdma_rxe, and the RDMA programs of this host, as something qemu can boot.

    image.py FOLDER [BUILD [SIW]]   makes FOLDER/vmlinuz, FOLDER/initramfs and FOLDER/bulk, for
                                    here and there

With BUILD, airdma as it was built there goes into the guest, too; with SIW, that module of siw, which
Debian's kernel is built without.

The kernel and busybox are Debian's packages, downloaded and unpacked, not installed; the programs
and their libraries are copies of what is installed here.
"""
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PATH = "/usr/bin:/usr/sbin:/bin:/sbin"
PROGRAMS = ["ip", "tc", "rdma", "rping", "ucmatose", "udaddy", "mckey", "ibv_devinfo",
            "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong",
            "ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat",
            "ib_atomic_bw", "ib_atomic_lat"]
MODULES = ["virtio_pci", "virtio_net", "crc32_generic", "ib_uverbs", "rdma_ucm", "rdma_rxe",
           "sch_netem", "sch_ingress", "cls_matchall", "act_gact"]
# For measurements: what siw needs, and the kernel's fast checksums.
SPEED_MODULES = ["crc32_pclmul", "crc32c_intel", "iw_cm", "libcrc32c"]


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-400:]}")
    return done.stdout


def kernel_package():
    """The package that linux-image-amd64 stands for at the moment."""
    found = re.search(r"Depends: (linux-image-\S+)", run("apt-cache", "depends", "linux-image-amd64"))
    if not found:
        raise RuntimeError("apt knows no linux-image-amd64; apt-get update may help")
    return found.group(1)


def download(folder, package):
    """The package's files, unpacked below folder."""
    into = folder / package
    if (into / ".complete").exists():
        return into
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    run("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package, cwd=into)
    for deb in into.glob("*.deb"):
        run("dpkg-deb", "-x", deb, into)
        deb.unlink()
    (into / ".complete").touch()
    return into


def copy(source, root):
    """A file to the place it has here. /lib and its like are in /usr, as on this host."""
    where = re.sub(r"^/(lib|lib64|sbin)/", r"/usr/\1/", str(source))
    target = root / where.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def copy_libraries(binary, root):
    listing = run("ldd", binary, env={"PATH": PATH})
    for library in re.findall(r"(/\S+) \(0x", listing):
        copy(library, root)


def add_programs(root):
    for name in PROGRAMS:
        source = shutil.which(name, path=PATH)
        if source is None:
            raise RuntimeError(f"{name} is not installed")
        copy_libraries(source, root)
        shutil.copy(source, root / "usr/bin" / name)
    providers = glob.glob("/usr/lib/*/libibverbs/librxe-*.so")
    if not providers:
        raise RuntimeError("the rxe provider (package ibverbs-providers) is not installed")
    # Not linked, but needed by who ends a thread, as rping does.
    for library in glob.glob("/lib/*/libgcc_s.so.1"):
        copy(library, root)
    for provider in providers + glob.glob("/usr/lib/*/libibverbs/libsiw-*.so"):
        copy_libraries(provider, root)
        copy(provider, root)
    for name in ("rxe", "siw"):
        copy(f"/etc/libibverbs.d/{name}.driver", root)


def add_airdma(build, root):
    """Where `airdma run` looks for its libraries, and without what only a debugger reads."""
    for folder, files in (("bin", [build / "bin/airdma"]),
                          ("lib/airdma", (build / "lib/airdma").glob("*.so*"))):
        (root / "airdma" / folder).mkdir(parents=True)
        for file in files:
            copy_libraries(file, root)
            run("strip", "-o", root / "airdma" / folder / file.name, file)


def add_modules(kernel, release, names, root):
    """The modules and what they need, and the order in which to load them."""
    run("depmod", "-b", kernel, release, env={"PATH": PATH})
    folder = kernel / "lib/modules" / release
    needs = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        module, _, others = line.partition(":")
        needs[module] = others.split()
    by_name = {os.path.basename(path).split(".")[0].replace("-", "_"): path for path in needs}
    order = []

    def add(path):
        for other in needs[path]:
            add(other)
        if path not in order:
            order.append(path)

    for name in names:
        if name in by_name:  # else it is built in
            add(by_name[name])
    (root / "modules").mkdir()
    lines = []
    for path in order:
        shutil.copy(folder / path, root / "modules")
        lines.append(f"/modules/{os.path.basename(path)}\n")
    (root / "modules/order").write_text("".join(lines))


def pack(root, busybox, into):
    names = "\n".join(["."] + [str(path.relative_to(root)) for path in sorted(root.rglob("*"))])
    with open(into, "wb") as out:
        subprocess.run([busybox, "cpio", "-o", "-H", "newc"], cwd=root, input=names.encode(),
                       stdout=out, stderr=subprocess.DEVNULL, check=True)


def build(folder, airdma=None, siw=None):
    folder.mkdir(parents=True, exist_ok=True)
    run("cc", "-O2", "-o", folder / "bulk", HERE / "bulk.c", "-libverbs")
    package = kernel_package()
    kernel = download(folder, package)
    busybox = download(folder, "busybox-static") / "bin/busybox"
    release = package.removeprefix("linux-image-")
    root = folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("usr/bin", "usr/lib", "usr/lib64", "bin", "proc", "sys", "dev", "tmp", "etc"):
        (root / name).mkdir(parents=True)
    for name in ("lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    shutil.copy(busybox, root / "bin")
    (root / "bin/sh").symlink_to("busybox")
    shutil.copy(HERE / "init", root / "init")
    (root / "init").chmod(0o755)
    add_programs(root)
    shutil.copy(folder / "bulk", root / "usr/bin")
    add_modules(kernel, release, MODULES + (SPEED_MODULES if airdma else []), root)
    if airdma:
        add_airdma(airdma, root)
    if siw:
        shutil.copy(siw, root / "modules/siw.ko")
        with open(root / "modules/order", "a", encoding="ascii") as order:
            order.write("/modules/siw.ko\n")
    pack(root, busybox, folder / "initramfs")
    shutil.copy(kernel / f"boot/vmlinuz-{release}", folder / "vmlinuz")


if __name__ == "__main__":
    try:
        build(*[pathlib.Path(name).absolute() for name in sys.argv[1:]])
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        sys.exit(f"interop FAILED: the guest cannot be made: {error}")
