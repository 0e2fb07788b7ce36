"""Builds the wheel from binaries that are there: the program, its library, and the package beside this file.

`cargo x wheel` builds the binaries and calls `main`. `pip wheel python/` calls `build_wheel`, and takes the release
binaries of the tree, or those of the directory that $VERVAIN_BINARIES names. It needs Python's own library only.
"""

import base64
import hashlib
import os
import re
import sys
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BINARIES = ["vervain", "libvervain_verbs.so"]
# What the zip says was done on: the same input gives the same wheel.
DATE = (1980, 1, 1, 0, 0, 0)


def version():
    """The workspace's version."""
    with open(HERE.parent / "Cargo.toml", "rb") as file:
        return tomllib.load(file)["workspace"]["package"]["version"]


def machine(binary):
    """The processor that a binary is for, as platform tags call it: from the ELF header, e_machine."""
    if binary[:4] != b"\x7fELF":
        raise SystemExit("a binary is no ELF file, so it is not for Linux")
    number = int.from_bytes(binary[18:20], "little")
    names = {62: "x86_64", 183: "aarch64"}
    if number not in names:
        raise SystemExit(f"a binary is for a processor that has no tag here: e_machine {number}")
    return names[number]


def glibc_minor(binaries):
    """The newest glibc 2.N whose symbols the binaries ask for. A text that only looks like one makes it too new, never too old."""
    found = [int(minor) for binary in binaries for minor in re.findall(rb"GLIBC_2\.(\d+)\0", binary)]
    if not found:
        raise SystemExit("the binaries name no glibc: are they built for another C library?")
    return max(found)


def metadata(project):
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version()}"]
    lines += [f"Summary: {project['description']}", f"License: {project['license']}"]
    lines += [f"Requires-Python: {project['requires-python']}"]
    lines += [f"Classifier: {classifier}" for classifier in project["classifiers"]]
    lines += ["Description-Content-Type: text/markdown", "", (HERE / project["readme"]).read_text()]
    return "\n".join(lines)


def entry_points(project):
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    parts = []
    for group, entries in groups.items():
        parts.append(f"[{group}]\n" + "".join(f"{name} = {what}\n" for name, what in entries.items()))
    return "\n".join(parts)


def files_of(project, binaries, tag):
    """What the wheel holds: names, bytes, and whether a file is a program."""
    name, info = project["name"], f"{project['name']}-{version()}.dist-info"
    for source in sorted((HERE / name).rglob("*.py")):
        yield f"{name}/{source.relative_to(HERE / name)}", source.read_bytes(), False
    for binary, content in binaries.items():
        yield f"{name}/bin/{binary}", content, True
    yield f"{info}/METADATA", metadata(project).encode(), False
    wheel = f"Wheel-Version: 1.0\nGenerator: wheel_of_binaries\nRoot-Is-Purelib: false\nTag: {tag}\n"
    yield f"{info}/WHEEL", wheel.encode(), False
    yield f"{info}/entry_points.txt", entry_points(project).encode(), False
    for license in ["LICENSE-APACHE", "LICENSE-MIT"]:
        yield f"{info}/licenses/{license}", (HERE.parent / license).read_bytes(), False


def make(from_dir, out_dir):
    """Writes the wheel into a directory; its file name."""
    with open(HERE / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    try:
        binaries = {name: (Path(from_dir) / name).read_bytes() for name in BINARIES}
    except FileNotFoundError as missing:
        raise SystemExit(f"{missing.filename} is missing: `cargo x wheel` builds it") from None
    processor, minor = machine(binaries["vervain"]), glibc_minor(binaries.values())
    tag = f"py3-none-manylinux_2_{minor}_{processor}"
    out = Path(out_dir) / f"{project['name']}-{version()}-{tag}.whl"
    out.parent.mkdir(parents=True, exist_ok=True)
    record = f"{project['name']}-{version()}.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content, is_program in files_of(project, binaries, tag):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}\n")
            write(wheel, name, content, 0o755 if is_program else 0o644)
        write(wheel, record, "".join([*lines, f"{record},,\n"]).encode(), 0o644)
    return out.name


def write(wheel, name, content, mode):
    entry = zipfile.ZipInfo(name, DATE)
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(entry, content)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """What pip calls (PEP 517)."""
    from_dir = os.environ.get("VERVAIN_BINARIES") or HERE.parent / "target/release"
    return make(from_dir, wheel_directory)


def build_sdist(sdist_directory, config_settings=None):
    """There is none: the sources are the workspace's."""
    raise SystemExit("there is no source distribution: build the wheel in a checkout, with `cargo x wheel`")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: wheel_of_binaries.py DIRECTORY_OF_BINARIES DIRECTORY_OF_WHEELS")
    print(Path(sys.argv[2]) / make(sys.argv[1], sys.argv[2]))
