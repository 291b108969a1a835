"""find_device in plain Python, as a launcher in Python would have it, on the cases of find_device.cpp.

Prints a JSON object: nanoseconds a call of each case, the median of the repetitions.
"""

import json
import statistics
import sys
import time


class Device:
    def __init__(self, kind: str, index: int):
        self.kind, self.index = kind, index


class Tensor:
    def __init__(self, device: Device):
        self.device = device


def find_device(arguments):
    """The device of the first tensor or device, depth first; None where there is none."""
    for one in arguments:
        if isinstance(one, Tensor):
            return one.device
        if isinstance(one, Device):
            return one
        if isinstance(one, (list, tuple)):
            found = find_device(one)
        elif isinstance(one, dict):
            found = find_device(one.values())
        else:
            continue
        if found is not None:
            return found
    return None


DEVICE = Device("cuda", 1)
TENSOR = Tensor(DEVICE)


def scalars(count: int) -> list:
    return [(i, i * 0.5, "relu", None)[i % 4] for i in range(count)]


def nested(depth: int) -> list:
    return [*scalars(2), nested(depth - 1) if depth else TENSOR]


CASES = {
    "first": ([TENSOR, *scalars(3)], DEVICE),
    "last of 16": ([*scalars(15), TENSOR], DEVICE),
    "nested 5 deep": (nested(5), DEVICE),
    "dict of 64": ([{f"parameter_{i}": scalar for i, scalar in enumerate(scalars(64))}, TENSOR], DEVICE),
    "list of 1000": ([[7] * 1000, TENSOR], DEVICE),
    "none": (scalars(16), None),
}


def nanoseconds(arguments: list, calls: int) -> float:
    before = time.perf_counter_ns()
    for _ in range(calls):
        find_device(arguments)
    return (time.perf_counter_ns() - before) / calls


def main() -> None:
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for name, (arguments, answer) in CASES.items():
        if find_device(arguments) is not answer:
            sys.exit(f"find_device.py: wrong answer for '{name}'")
    for _ in range(31):
        for name, (arguments, _) in CASES.items():
            found[name].append(
                nanoseconds(arguments, max(1, 2000 // len(arguments[0] if isinstance(arguments[0], (list, dict)) else arguments)))
            )
    json.dump({name: statistics.median(times) for name, times in found.items()}, sys.stdout)


main()
