"""The C interface, called from a C program and through ctypes, against the command line tool.

usage: check.py TOOL LIBRARY PROGRAM DOCUMENT…     last line: N passed, N failed
"""

import ctypes
import subprocess
import sys
import threading
import traceback
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path

TOOL, LIBRARY, PROGRAM = sys.argv[1:4]
DOCUMENTS = [Path(name) for name in sys.argv[4:]]
OK, ERROR, USAGE, MISSING = range(4)
KINDS = ["none", "invalid", "missing", "unsupported", "unknown backend", "not built", "unknown operation", "device ir", "memory", "other"]
CONFIG = '{"num_warps": 2, "mine": 1}'

SIGNATURES = {
    "muster_version": (c_char_p, []),
    "muster_backend_count": (c_size_t, []),
    "muster_backend_name": (c_char_p, [c_size_t]),
    "muster_last_error_kind": (c_int, []),
    "muster_last_error_message": (c_char_p, []),
    "muster_free": (None, [c_void_p]),
    "muster_codegen": (c_int, [c_char_p, c_size_t, c_char_p, c_char_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t)]),
    "muster_generator_new": (c_int, [c_char_p, c_size_t, c_char_p, POINTER(c_void_p)]),
    "muster_generator_codegen": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t)]),
    "muster_generator_notes": (c_char_p, [c_void_p]),
    "muster_generator_free": (None, [c_void_p]),
}


def load() -> ctypes.CDLL:
    library = ctypes.CDLL(LIBRARY)
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


muster = load()
BACKENDS = [muster.muster_backend_name(i).decode() for i in range(muster.muster_backend_count())]


def run(*command: object) -> tuple[int, bytes, str]:
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    messages = [line for line in done.stderr.decode().splitlines() if not line.startswith("note: ")]
    return done.returncode, done.stdout, "\n".join(messages)


def by_tool(document: Path, backend: str, config: str | None = None) -> tuple[int, bytes, str]:
    return run(TOOL, "codegen", document, "--backend", backend, *(["--config", config] if config else []))


def taken(status: int, source: c_void_p, size: c_size_t) -> tuple[int, bytes, str]:
    """What a call gave, as the tool would give it; releases the source."""
    assert (status == OK) == bool(source), "a source, or an error"
    content = ctypes.string_at(source, size.value) if source else b""
    muster.muster_free(source)
    return status, content, muster.muster_last_error_message().decode()


class Generator:
    def __init__(self, text: bytes, file: str | None = None) -> None:
        self.handle = c_void_p()
        self.status = muster.muster_generator_new(text, len(text), file and file.encode(), byref(self.handle))

    def codegen(self, backend: str, config: str | None = None) -> tuple[int, bytes, str]:
        source, size = c_void_p(), c_size_t()
        status = muster.muster_generator_codegen(self.handle, backend.encode(), config and config.encode(), byref(source), byref(size))
        return taken(status, source, size)

    def notes(self) -> list[str]:
        return muster.muster_generator_notes(self.handle).decode().splitlines()

    def __del__(self) -> None:
        muster.muster_generator_free(self.handle)


def codegen(text: bytes, backend: str, config: str | None = None, file: str | None = None) -> tuple[int, bytes, str]:
    source, size = c_void_p(), c_size_t()
    arguments = (file and file.encode(), backend.encode(), config and config.encode(), byref(source), byref(size))
    return taken(muster.muster_codegen(text, len(text), *arguments), source, size)


def kind() -> str:
    return KINDS[muster.muster_last_error_kind()]


def check_names() -> None:
    """Version and backends are the tool's."""
    assert run(TOOL, "--version")[1].decode().split()[-1] == muster.muster_version().decode()
    assert [line.split()[0] for line in run(TOOL, "backends")[1].decode().splitlines()] == BACKENDS


def check_exports() -> None:
    """The shared library shows the functions of the header and nothing else."""
    symbols = {line.split()[-1] for line in run("nm", "-D", "--defined-only", LIBRARY)[1].decode().splitlines()}
    assert symbols == set(SIGNATURES), symbols ^ set(SIGNATURES)


def check_same_as_tool() -> None:
    """One parse, then every backend and both configs, in a changing order: bytes, status and message are the tool's."""
    for document in DOCUMENTS:
        text = document.read_bytes()
        generator = Generator(text, str(document))
        assert generator.status == OK, document
        wanted = {(backend, config): by_tool(document, backend, config) for backend in BACKENDS for config in (None, CONFIG)}
        for backend, config in [*wanted, *reversed(wanted)]:
            assert generator.codegen(backend, config) == wanted[backend, config], (document, backend, config)
        for backend, config in wanted:
            assert codegen(text, backend, config, str(document)) == wanted[backend, config], (document, backend, config)


def check_c_program() -> None:
    """A program compiled by the C compiler: its own checks, and the tool's bytes, messages and exit statuses."""
    assert run(PROGRAM) == (0, b"", "")
    for document in DOCUMENTS[:3]:
        for backend in [*BACKENDS, "no_such"]:
            assert run(PROGRAM, document, backend) == by_tool(document, backend), (document, backend)
        assert run(PROGRAM, document, "triton", CONFIG) == by_tool(document, "triton", CONFIG), document


def check_notes() -> None:
    """Notes are those of the last generation that succeeded."""
    generator = Generator(DOCUMENTS[0].read_bytes())
    assert generator.notes() == []
    generator.codegen("triton", CONFIG)
    assert generator.notes() == ["config key 'mine' is not known; it changes nothing"]
    generator.codegen("metal")
    assert len(generator.notes()) == 1
    generator.codegen("triton")
    assert generator.notes() == []


def check_errors() -> None:
    """Each kind of error, with its status and message."""
    text = DOCUMENTS[0].read_bytes()
    missing = "Backend 'metal' is missing required implementation: codegen for API function load"
    assert codegen(text, "metal") == (MISSING, b"", missing) and kind() == "missing"
    status, _, message = codegen(text, "mettal")
    assert (status, kind()) == (ERROR, "unknown backend") and message.endswith("Did you mean 'metal'?")
    status, _, message = codegen(b"kernel", "triton", file="mine.txt")
    assert (status, kind()) == (ERROR, "device ir") and message.startswith("mine.txt:1:"), message
    status, _, message = codegen(text[: len(text) // 2], "triton")
    assert (status, kind()) == (ERROR, "device ir") and message.startswith("<text>:"), message
    status, _, message = codegen(text, "triton", '{"num_warps": []}')
    assert (status, kind()) == (ERROR, "device ir") and message.startswith("<config>:1:"), message
    assert codegen(b"\xff\0\xfe" * 1000, "triton")[0] == ERROR
    assert muster.muster_codegen(None, 0, None, None, None, None, None) == USAGE and kind() == "invalid"
    assert codegen(text, "triton")[2] == "" and kind() == "none"


def check_config_overrides_the_document() -> None:
    """No config, an empty one and the absence of a file name all mean the document's own."""
    text = DOCUMENTS[0].read_bytes()
    assert codegen(text, "triton")[1] == codegen(text, "triton", "{}")[1] != codegen(text, "triton", '{"num_warps": 2}')[1]


def check_errors_are_of_one_thread() -> None:
    """An error in one thread is none in another; many threads, each with its generator, get the same bytes."""
    text = DOCUMENTS[0].read_bytes()
    wanted = codegen(text, "triton")
    codegen(text, "no_such")
    results = []

    def work() -> None:
        generator = Generator(text)
        before = kind()
        got = {generator.codegen("triton", config) for config in [None] * 50}
        codegen(text, "metal")
        results.append((before, got, kind()))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [("none", {wanted}, "missing")] * 8, results
    assert kind() == "unknown backend"


def main() -> int:
    failed = 0
    checks = {name: check for name, check in globals().items() if name.startswith("check_")}
    for name, check in checks.items():
        try:
            check()
            print(f"passed {name}")
        except Exception:
            failed += 1
            print(f"failed {name}: {check.__doc__}\n{traceback.format_exc()}")
    print(f"{len(checks) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
