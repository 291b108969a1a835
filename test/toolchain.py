"""The compiler of a finished build folder, and the tools that belong to it."""

import json
import re
import shlex
from pathlib import Path


class Toolchain:
    def __init__(self, build: Path) -> None:
        command = shlex.split(json.loads((build / "compile_commands.json").read_text())[0]["command"])
        self.compiler = command[1] if Path(command[0]).name == "ccache" else command[0]
        self.is_clang = "clang" in Path(self.compiler).name
        self.version = re.search(r"(-\d+)?$", self.compiler)[0]  # `-19`, as the other tools have it behind their names
        self.linker = f"lld{self.version}" if self.is_clang else "bfd"
        self.archiver = f"llvm-ar{self.version}" if self.is_clang else f"gcc-ar{self.version}"
        self.thin_lto = "-flto=thin" if self.is_clang else "-flto"
        self.interface_suffix = ".pcm" if self.is_clang else ".gcm"

    def environment(self) -> dict[str, str]:
        """What a build with the same tools is configured with."""
        return {"CXX": self.compiler} | ({"CXX_LD": self.linker} if self.is_clang else {})
