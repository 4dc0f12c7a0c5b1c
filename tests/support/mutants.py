"""Which conditions of the native kernel no test holds: ``make mutants``.

All mutants are compiled at once, into one copy of the sources where each condition asks which mutant is on. pytest
collects the tests once; each mutant then runs, in a process of its own, the tests that reach its condition, until one
fails. Every condition is made true and false, each operand of ``and`` and ``or`` is left out, and ``<`` becomes ``<=``
and back.

Those that live are compared with ``tests/format/mutants.txt``, which has the reason why each may; others are errors.
A test that fails, a crash and a test that takes six times its CPU time count as death.

What came of each is kept in ``build/mutants``, so that a run that was cut short goes on. It holds while the module's
sources and the files of the tests are what they were: of a death, the file of the test that saw it. When they are not,
that test is the first to run.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FORMAT = ROOT / "segreader" / "format"
BUILD = ROOT / "build" / "mutants"
KNOWN = ROOT / "tests" / "format" / "mutants.txt"
VERDICTS = BUILD / "verdicts"
SOURCES = {"_kernel": ["_codecs.h", "_kernel.pyx"], "_rows": ["_rows.h", "_rows.pyx"]}
TESTS = [
    *(
        f"tests/format/test_{name}.py"
        for name in ("kernels", "native_codecs", "fast_path", "kernel_bounds", "native_fuzz")
    ),
    *(
        f"tests/format/test_{name}.py"
        for name in ("rows", "checksum", "java_utf8", "compression", "foreign_encoders", "scanner", "index_entries")
    ),
]
JOBS, MOST_MEMORY = 2, 8 << 30
LONGEST = 0.4  # seconds that a test may take; what only a longer one sees should have a test of its own
AT_FIRST = 1.0  # seconds of tests for each mutant; when all have had them, the other tests for those that live
LEAST_SECONDS, TIMES = 2.0, 6  # of CPU, for a test that may hang: at least, and of what it took without a mutant

HEADER = """
#ifndef MUTANTS_H
#define MUTANTS_H
static int mutant;
static unsigned char reached[1 << 14];
static inline int MUTANT(int number) { reached[number] = 1; return mutant == number; }
static inline int MADE_TRUE(int number, int truth) { return MUTANT(number) || truth; }
static inline int MADE_FALSE(int number, int truth) { return !MUTANT(number) && truth; }
static void set_mutant_to(int number) { mutant = number; memset(reached, 0, sizeof reached); }
static const char *reached_bytes(void) { return (const char *)reached; }
#endif
"""
PRELUDE = """
cdef extern from "mutants.h" nogil:
    bint MUTANT(int)
    bint MADE_TRUE(int, bint)
    bint MADE_FALSE(int, bint)
    void set_mutant_to(int)
    const char *reached_bytes()

def set_mutant(int number):
    set_mutant_to(number)
    BEGIN

def reached():
    return reached_bytes()[:1 << 14]
"""

_CAST = r"<(?:const )?(?:\w+_t|\w+_function|isal_state|tuple|list|int|char|void|PyObject|PyMemberDescrObject) ?\*?>"
_OPERATORS = r"->|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%&|^<>=!~?:;,.()\[\]{}@\\]"
_TOKENS = {
    "c": re.compile(
        rf"""(?s:/\*.*?\*/)|//[^\n]*|\#(?:[^\n\\]|\\.|\\\n)*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\w+|{_OPERATORS}|\s+"""
    ),
    "py": re.compile(
        rf"""\#[^\n]*|[fbr]?(?:(?s:\"\"\".*?\"\"\")|"(?:[^"\\\n]|\\.)*")|{_CAST}|(?:is|not)(?=\s)(?:\s+(?:not|in)\b)?|\w+|{_OPERATORS}|\s+"""
    ),
}
_OPEN, _CLOSE = "([{", ")]}"
_ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "<<=", ">>="}
_BREAKS = {
    "c": {",", ";", "return", "else", "do", *_ASSIGN},
    "py": {",", ":", "return", "yield", "raise", *_ASSIGN},
}
_COMPARE = {
    "c": {"<", ">", "<=", ">=", "==", "!="},
    "py": {"<", ">", "<=", ">=", "==", "!=", "is", "is not", "in", "not in"},
}
_OR, _AND, _NOT = {"c": "||", "py": "or"}, {"c": "&&", "py": "and"}, {"c": "!", "py": "not"}
_NEXT = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}

Tokens = list[str]


@dataclass
class Mutant:
    """One change of one condition."""

    number: int
    place: str
    change: str

    def __str__(self) -> str:
        return f"{self.place}: {self.change}"


@dataclass
class Source:
    """A source whose conditions ask which mutant is on."""

    language: str
    name: str
    numbers: Iterator[int]
    mutants: list[Mutant] = field(default_factory=list)
    place: str = ""

    def rewritten(self, text: str) -> str:
        tokens = _TOKENS[self.language].findall(text)
        assert "".join(tokens) == text, f"{self.name} has text that is no token"
        return self._c(tokens) if self.language == "c" else self._py(tokens)

    def _c(self, tokens: Tokens) -> str:
        made, at, depth = list[str](), 0, 0
        while at < len(tokens):
            token = tokens[at]
            stop = at + 1
            if token in ("if", "while", "for", "switch"):
                start = _next(tokens, at + 1)
                stop = _closing(tokens, start) + 1
                head, inner = tokens[at : start + 1], tokens[start + 1 : stop - 1]
                if token == "for":
                    first, second, third = _split(inner, {";"})[0]
                    inside = (
                        f"{self.value(first)};{self.condition(second) if _text(second) else ''};{self.value(third)}"
                    )
                else:
                    inside = self.value(inner) if token == "switch" else self.condition(inner)
                made.append("".join(head) + inside + ")")
            elif token in ("case", "default"):
                stop = tokens.index(":", at) + 1
                made.append("".join(tokens[at:stop]))
            elif token in "{}" or token.isspace() or token[:1] == "#" or token[:2] in ("/*", "//"):
                depth += {"{": 1, "}": -1}.get(token, 0)
                made.append(token)
            else:
                stop = _statement(tokens, at)
                piece = tokens[at:stop]
                if not depth and (name := re.search(r"(\w+)\s*\([^()]*\)\s*$", "".join(piece))):
                    self.place = f"{self.name} {name[1]}"
                    made.append("".join(piece))
                else:
                    made.append(self.value(piece))
            at = stop
        return "".join(made)

    def _py(self, tokens: Tokens) -> str:
        made, at = list[str](), 0
        while at < len(tokens):
            stop = _logical_line(tokens, at)
            line = tokens[at:stop]
            words = [token for token in line if token.strip() and token[0] != "#"]
            text = "".join(line)
            if (
                words
                and (words[0] in ("def", "cdef", "ctypedef", "class", "from", "import", "@"))
                and (words[-1] == ":" or "=" not in words)
            ):
                if name := re.search(r"(\w+)(?:\(|:)", text):
                    self.place = f"{self.name} {name[1]}"
                made.append(text)
            elif words and words[0] in ("if", "elif", "while"):
                start, end = line.index(words[0]) + 1, max(k for k, token in enumerate(line) if token == ":")
                made.append("".join(line[:start]) + " ")
                made.append(self.condition(line[start:end]) + "".join(line[end:]))
            elif words and words[0] == "for":
                start = line.index("in") + 1
                made.append("".join(line[:start]) + self.value(line[start:]))
            else:
                made.append(self.value(line))
            at = stop
        return "".join(made)

    def value(self, tokens: Tokens) -> str:
        """An expression, or several: what is a truth in it becomes mutants."""
        pieces, breaks = _split(tokens, _BREAKS[self.language])
        if breaks:
            made = self.value(pieces[0])
            for token, piece in zip(breaks, pieces[1:], strict=True):
                made += token + self.value(piece)
            return made
        if ternary := self._ternary(tokens):
            return ternary
        own = _depth_0(tokens)
        if own & {_OR[self.language], _AND[self.language]}:
            return self.condition(tokens)
        if own & _COMPARE[self.language]:
            if self.language == "c":
                pieces, breaks = _split(tokens, {"&", "|", "^"})
                if breaks and all(map(_text, pieces)):
                    made = self.value(pieces[0])
                    for token, piece in zip(breaks, pieces[1:], strict=True):
                        made += token + self.value(piece)
                    return made
            return self.condition(tokens)
        return self._inner(tokens)

    def condition(self, tokens: Tokens, kinds: str = "TF") -> str:
        """A truth: always true and always false, as ``kinds`` has it, and with each part left out."""
        start = next((k for k, token in enumerate(tokens) if token.strip()), 0)
        stop = max((k + 1 for k, token in enumerate(tokens) if token.strip()), default=0)
        before, core, after = "".join(tokens[:start]), tokens[start:stop], "".join(tokens[stop:])
        return before + self._condition(core, kinds) + after

    def _condition(self, core: Tokens, kinds: str) -> str:
        language = self.language
        if core == ["True"]:
            return "True"
        if core[0] == "(" and _closing(core, 0) == len(core) - 1 and not _depth_0(core[1:-1]) & _BREAKS[language]:
            return "(" + self.condition(core[1:-1], kinds) + ")"
        if not _depth_0(core) & (_BREAKS[language] | {"?", "if"}):
            for operator, left_out in ((_OR[language], "F"), (_AND[language], "T")):
                pieces, breaks = _split(core, {operator})
                if breaks:
                    numbers = self._constants(core, kinds)
                    return self._constant(numbers, operator.join(self.condition(piece, left_out) for piece in pieces))
        numbers = self._constants(core, kinds)
        others = list[tuple[int, str]]()
        for at in _at_depth_0(core):
            if core[at] in _NEXT:
                text = "".join([*core[:at], _NEXT[core[at]], *core[at + 1 :]])
                others.append((self._add(core, text), text))
        inner = _next(core, 1) if core[0] == _NOT[language] else 0
        if inner and core[inner] == "(" and _closing(core, inner) == len(core) - 1:
            text = core[0] + " " + self.condition(core[inner:], "")
        else:
            text = self._inner(core)
        for number, other in others:
            text = (
                f"(MUTANT({number}) ? {other} : {text})"
                if language == "c"
                else f"(({other}) if MUTANT({number}) else ({text}))"
            )
        return self._constant(numbers, text)

    def _ternary(self, tokens: Tokens) -> str:
        if self.language == "c":
            marks = [k for k in _at_depth_0(tokens) if tokens[k] in "?:"]
            if not marks or tokens[marks[0]] != "?":
                return ""
            open_marks = 0
            for mark in marks:
                open_marks += 1 if tokens[mark] == "?" else -1
                if not open_marks:
                    break
            first, second, third = tokens[: marks[0]], tokens[marks[0] + 1 : mark], tokens[mark + 1 :]
            return f"{self.condition(first)} ?{self.value(second)}:{self.value(third)}"
        at = {tokens[k]: k for k in reversed(_at_depth_0(tokens))}
        if not {"if", "else"} <= at.keys():
            return ""
        first, second, third = tokens[: at["if"]], tokens[at["if"] + 1 : at["else"]], tokens[at["else"] + 1 :]
        return f"{self.value(first)}if {self.condition(second)}else{self.value(third)}"

    def _inner(self, tokens: Tokens) -> str:
        made, at = list[str](), 0
        while at < len(tokens):
            if tokens[at] in _OPEN:
                stop = _closing(tokens, at)
                made.append(tokens[at] + self.value(tokens[at + 1 : stop]) + tokens[stop])
                at = stop
            else:
                made.append(tokens[at])
            at += 1
        return "".join(made)

    def _constants(self, core: Tokens, kinds: str) -> dict[str, int]:
        return {kind: self._add(core, "true" if kind == "T" else "false") for kind in kinds}

    def _constant(self, numbers: dict[str, int], text: str) -> str:
        for kind, number in numbers.items():
            truth = f"({text}) ? 1 : 0" if self.language == "c" else text
            text = f"{'MADE_TRUE' if kind == 'T' else 'MADE_FALSE'}({number}, {truth})"
        return text

    def _add(self, core: Tokens, change: str) -> int:
        self.mutants.append(Mutant(next(self.numbers), self.place, f"{_plain(core)} => {_plain([change])}"))
        return self.mutants[-1].number


def _plain(tokens: Tokens) -> str:
    return " ".join("".join(token for token in tokens if token[:2] != "/*" and token[0] != "#").split())


def _text(tokens: Tokens) -> bool:
    return any(token.strip() for token in tokens)


def _next(tokens: Tokens, at: int) -> int:
    while at < len(tokens) - 1 and not tokens[at].strip():
        at += 1
    return at


def _closing(tokens: Tokens, at: int) -> int:
    depth = 0
    for k in range(at, len(tokens)):
        depth += (tokens[k] in _OPEN) - (tokens[k] in _CLOSE)
        if not depth:
            return k
    raise ValueError("a bracket is not closed")


def _at_depth_0(tokens: Tokens) -> list[int]:
    found, depth = [], 0
    for k, token in enumerate(tokens):
        if token in _CLOSE:
            depth -= 1
        elif token in _OPEN:
            depth += 1
        elif not depth:
            found.append(k)
    return found


def _depth_0(tokens: Tokens) -> set[str]:
    return {tokens[k] for k in _at_depth_0(tokens)}


def _split(tokens: Tokens, at: set[str]) -> tuple[list[Tokens], Tokens]:
    cuts = [k for k in _at_depth_0(tokens) if tokens[k] in at]
    starts = [0, *(cut + 1 for cut in cuts)]
    return [tokens[start:stop] for start, stop in zip(starts, [*cuts, len(tokens)], strict=True)], [
        tokens[k] for k in cuts
    ]


def _statement(tokens: Tokens, at: int) -> int:
    """Where a statement of C ends: behind its semicolon, or in front of a brace that begins a block."""
    depth = 0
    while at < len(tokens):
        token = tokens[at]
        if not depth and token == ";":
            return at + 1
        is_value = token == "{" and re.search(r"=\s*$", "".join(tokens[max(0, at - 2) : at]))
        ends = token in "{}" or token in ("if", "while", "for", "switch") or token[:1] == "#"
        if not depth and ends and not is_value:
            return at
        depth += (token in _OPEN) - (token in _CLOSE)
        at += 1
    return at


def _logical_line(tokens: Tokens, at: int) -> int:
    depth = 0
    while at < len(tokens):
        token = tokens[at]
        depth += (token in _OPEN) - (token in _CLOSE)
        at += 1
        if not depth and token.isspace() and "\n" in token:
            break
    return at


def write_sources(to: Path) -> list[Mutant]:
    """Both modules, rewritten; the mutants in them that this machine's compiler sees."""
    found: list[Mutant] = []
    _write(to / "mutants.h", HEADER)
    for first, names in zip((1, 1 << 13), SOURCES.values(), strict=True):
        numbers = count(first)
        for name in names:
            source = Source("c" if name.endswith(".h") else "py", name, numbers)
            text = source.rewritten((FORMAT / name).read_text())
            if name.endswith(".h"):
                _write(to / name, text.replace("#include <string.h>", '#include <string.h>\n#include "mutants.h"', 1))
                seen = subprocess.run(["gcc", "-E", to / name], check=True, capture_output=True, text=True).stdout
                compiled = set(map(int, re.findall(r"M[A-Z_]+\((\d+)", seen)))
                found += [mutant for mutant in source.mutants if mutant.number in compiled]
            else:
                begin = "crc_begin()\n    snappy_begin()" if name == "_kernel.pyx" else "pass"
                text = text.replace("\n\ncrc_begin()\nsnappy_begin()\n", "\n")  # set_mutant does it
                _write(to / name, text + PRELUDE.replace("BEGIN", begin))
                found += source.mutants
    again: Counter[str] = Counter()
    for mutant in found:  # the same condition twice in a function
        again[key := str(mutant)] += 1
        mutant.change += f" ({again[key]})" if again[key] > 1 else ""
    return found


def _write(path: Path, text: str) -> None:
    """What is the same stays as old as it is, and is not compiled again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def build() -> list[Mutant]:
    """The two extension modules with all mutants, built as the package's own are."""
    (BUILD / "segreader" / "format").mkdir(parents=True, exist_ok=True)
    _write(BUILD / "setup.py", (ROOT / "setup.py").read_text())
    mutants = write_sources(BUILD / "segreader" / "format")
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        check=True, cwd=BUILD, env={**os.environ, "SEGREADER_REQUIRE_KERNEL": "1"},
    )  # fmt: skip
    return mutants


def known_to_live() -> dict[str, str]:
    """Mutants by their text, and why each may live."""
    lines = [line for line in KNOWN.read_text().splitlines() if line and line[0] != "#"]
    return {mutant: reason for reason, _, mutant in (line.partition(" | ") for line in lines)}


def load() -> list[ModuleType]:
    """Put the modules with mutants where tests import the kernel from."""
    package = importlib.import_module("segreader.format")
    modules = []
    for name in SOURCES:
        (path,) = (BUILD / "segreader" / "format").glob(f"{name}.*.so")
        spec = importlib.util.spec_from_file_location(f"segreader.format.{name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        setattr(package, name, module)
        modules.append(module)
    return modules


class Verdicts:
    """What came of mutants in this run and in earlier ones: the test that each died in; of those that live none."""

    def __init__(self, tests: list[str]) -> None:
        self._tests = sorted({name.partition("::")[0] for name in tests})
        BUILD.mkdir(parents=True, exist_ok=True)
        VERDICTS.touch()
        lines = map(json.loads, VERDICTS.read_text().splitlines())
        self.found: dict[str, tuple[str | None, str]] = {mutant: (test, digest) for mutant, test, digest in lines}
        read = {FORMAT / name for names in SOURCES.values() for name in names} | {ROOT / name for name in self._tests}
        read |= {ROOT / test.partition("::")[0] for test, _ in self.found.values() if test}
        self._files = {path: path.read_bytes() if path.exists() else b"" for path in read}  # now: they may change

    def add(self, mutant: Mutant, test: str | None) -> None:
        with VERDICTS.open("a") as lines:
            lines.write(f"{json.dumps([str(mutant), test, self._digest(mutant, test)])}\n")

    def killer(self, mutant: Mutant) -> str | None:
        """The test that the mutant died in when it last ran."""
        return self.found.get(str(mutant), (None, ""))[0]

    def holds(self, mutant: Mutant) -> bool:
        test, digest = self.found.get(str(mutant), (None, ""))
        return digest == self._digest(mutant, test)

    def _digest(self, mutant: Mutant, test: str | None) -> str:
        """Of the files that the verdict rests on."""
        sources = next(names for names in SOURCES.values() if mutant.place.split()[0] in names)
        paths = [*(FORMAT / name for name in sources)]
        paths += [ROOT / name for name in ([test.partition("::")[0]] if test else self._tests)]
        return hashlib.sha256(b"".join(hashlib.sha256(self._files[path]).digest() for path in paths)).hexdigest()


class Runner:
    """Runs the collected tests once as they are, then for each mutant in a process of its own."""

    def __init__(self, mutants: list[Mutant], modules: list[ModuleType], verdicts: Verdicts) -> None:
        self.mutants, self.modules, self.verdicts = mutants, modules, verdicts
        self.took: dict[str, float] = {}
        self.reach: dict[int, set[str]] = {mutant.number: set() for mutant in mutants}
        self.kills: Counter[str] = Counter()
        self.alive: list[Mutant] = []
        self.running: dict[int, tuple[int, Mutant, list[str]]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        phases = [Phase.explicit, Phase.generate]  # a failure is enough: it need not be the least
        settings.register_profile(
            "mutants", settings.get_profile("quick"), database=None, derandomize=True, phases=phases
        )

    def set_mutant(self, number: int) -> None:
        for module in self.modules:
            module.set_mutant(number)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        for line in self._in_child(items, list(items), 0):
            name, seconds, reached, failed = line
            assert not failed, f"{name} fails without a mutant"
            self.took[name] = seconds
            for number in reached:
                if number in self.reach and seconds < LONGEST:
                    self.reach[number].add(name)
        waiting = deque((mutant, [*self.reach[mutant.number]]) for mutant in self.mutants)
        while waiting or self.running:
            while waiting and len(self.running) < JOBS:
                mutant, tests = waiting.popleft()
                tests = self._ordered(tests, self.verdicts.killer(mutant))
                some = next(
                    (k for k in range(len(tests)) if sum(map(self.took.__getitem__, tests[:k])) > AT_FIRST), None
                )
                pipe, pid = self._start(items, tests[:some], mutant.number)
                self.running[pipe] = pid, mutant, [] if some is None else tests[some:]
            for pipe in select.select(list(self.running), [], [])[0]:
                pid, mutant, tests = self.running.pop(pipe)
                with os.fdopen(pipe) as lines:
                    begun = lines.read().splitlines()
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                if not status and tests:
                    waiting.append((mutant, tests))
                    print("later", mutant, file=sys.__stdout__, flush=True)
                    continue
                killer = json.loads(begun[-1]) if status and begun else None
                if not status:
                    self.alive.append(mutant)
                if killer:
                    self.kills[killer] += 1
                if killer or not status:
                    self.verdicts.add(mutant, killer)
                end = f"dies of {status} in {killer or 'its start'}" if status else "LIVES"
                print(f"{mutant} {end}", file=sys.__stdout__, flush=True)
        return True

    def _ordered(self, tests: Iterable[str], first: str | None) -> list[str]:
        return sorted(tests, key=lambda name: (name != first, (self.took[name] + 0.01) / (1 + self.kills[name])))

    def _start(self, items: dict[str, pytest.Item], tests: list[str], number: int) -> tuple[int, int]:
        """A child that names each test on the pipe before it runs it, and exits with 1 at the first that fails."""
        pipe, to = os.pipe()
        pid = os.fork()
        if not pid:
            status = 1
            try:
                self._quiet()
                signal.setitimer(signal.ITIMER_PROF, LEAST_SECONDS)
                self.set_mutant(number)
                for name in tests:
                    os.write(to, f"{json.dumps(name)}\n".encode())
                    signal.setitimer(signal.ITIMER_PROF, LEAST_SECONDS + TIMES * self.took[name])
                    if self._fails(items[name]):
                        break
                else:
                    status = 0
            finally:
                os._exit(status)
        os.close(to)
        return pipe, pid

    def _in_child(self, items: dict[str, pytest.Item], tests: list[str], number: int) -> Iterator[Any]:
        pipe, to = os.pipe()
        pid = os.fork()
        if not pid:
            self._quiet()
            for name in tests:
                self.set_mutant(number)
                began = time.process_time()
                failed = self._fails(items[name])
                took = time.process_time() - began
                reached = [k for module in self.modules for k, byte in enumerate(module.reached()) if byte]
                os.write(to, f"{json.dumps([name, took, reached, failed])}\n".encode())
            os._exit(0)
        os.close(to)
        with os.fdopen(pipe) as lines:
            yield from map(json.loads, lines)
        assert os.waitpid(pid, 0)[1] == 0, "a test without a mutant ends the process"

    @staticmethod
    def _quiet() -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        if "SEGREADER_SANITIZE" not in os.environ:  # which takes terabytes of addresses
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    @staticmethod
    def _fails(item: pytest.Item) -> bool:
        """Run a test without a report: to write down why one fails takes longer than to run it."""
        hook = item.config.hook
        try:
            hook.pytest_runtest_setup(item=item)
            hook.pytest_runtest_call(item=item)
        except pytest.skip.Exception:
            pass
        except BaseException:
            return True
        finally:
            hook.pytest_runtest_teardown(item=item, nextitem=None)
        return False


def main() -> int:
    """0 if every mutant dies, or may live."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="mutants whose text this regular expression finds")
    parser.add_argument("--list", action="store_true", help="name the mutants, and run none")
    parser.add_argument("tests", nargs="*", default=TESTS)
    options = parser.parse_args()
    os.chdir(ROOT)
    verdicts = Verdicts(options.tests)
    chosen = [mutant for mutant in build() if re.search(options.only, str(mutant))]
    if options.list:
        print("\n".join(str(mutant) for mutant in chosen))
        return 0
    alive = {str(mutant) for mutant in chosen if verdicts.holds(mutant) and not verdicts.killer(mutant)}
    runner = Runner([mutant for mutant in chosen if not verdicts.holds(mutant)], load(), verdicts)
    arguments = ["-s", "-qq", "-m", "not exhaustive", "--hypothesis-profile", "mutants"]
    arguments += [f"-pno:{plugin}" for plugin in ("faulthandler", "cacheprovider", "randomly")]
    if runner.mutants and pytest.main([*arguments, *options.tests], plugins=[runner]):
        return 2
    alive |= {str(mutant) for mutant in runner.alive}
    known = known_to_live()
    print(f"{len(chosen)} mutants, {len(alive)} live, {len(alive & set(known))} of them known")
    for one in sorted(alive - set(known)):
        print("lives:", one)
    for one in sorted({str(mutant) for mutant in chosen} & set(known) - alive):
        print("dies, and need not be listed:", one)
    return 1 if alive - set(known) else 0


if __name__ == "__main__":
    raise SystemExit(main())
