"""The prompt: lines are edited, completed and remembered by prompt_toolkit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from segreader.cli.output import say
from segreader.cli.shell.completion import proposals
from segreader.cli.sql_statements import is_complete
from segreader.errors import OptionError, install_hint
from segreader.storage.signed_url import redact

if TYPE_CHECKING:
    from segreader.cli.shell.session import SqlSession

_PROMPT: Final = "segreader> "
_MORE: Final = "      ...> "
_SECRET: Final = re.compile(
    r"(?i)secret|passw|token|credential|signature|jaas|authorization|bearer|api[_-]?key|access[_-]?key|\bsas\b"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{8,}|-----BEGIN|://[^/\s']*@|[?&](?:sig|x-amz-)"
)


def history_file(environ: Mapping[str, str] | None = None) -> Path:
    """Where statements are remembered: ``segreader/history`` in ``$XDG_STATE_HOME`` or ``~/.local/state``."""
    environ = os.environ if environ is None else environ
    state = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return Path(state) / "segreader" / "history"


def may_hold_a_secret(text: str) -> bool:
    """Whether a text looks as if a credential were in it: then it is not remembered."""
    return redact(text) != text or _SECRET.search(text) is not None


def typed_texts(session: SqlSession) -> Iterator[str]:
    """What a person types at the prompt: a command, or statements up to a semicolon; ends with Ctrl-D.

    Raises:
        OptionError: prompt_toolkit is not installed.
    """
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import CompleteEvent, Completer, Completion
        from prompt_toolkit.document import Document
        from prompt_toolkit.filters import completion_is_selected, has_completions
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    except ImportError:
        raise OptionError("the shell needs prompt_toolkit, which is not installed", hint=install_hint("sql")) from None

    class PrivateHistory(FileHistory):
        """A file that only its owner may read; lines that look like a secret are not kept."""

        def store_string(self, string: str) -> None:
            if may_hold_a_secret(string):
                return
            with suppress(OSError):
                super().store_string(string)

    class Words(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            with suppress(Exception):  # the query that needs the location reports the error
                for one in proposals(document.text_before_cursor, session.tables.names, session.tables.paths_of):
                    yield Completion(one.text, -one.replaces)

    keys = KeyBindings()

    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text
        if not text.strip() or text.lstrip().startswith(".") or is_complete(text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    keys.add("enter", filter=~(has_completions & completion_is_selected))(enter)
    prompt: PromptSession[str] = PromptSession(
        _PROMPT,
        history=PrivateHistory(str(_private(history_file()))),
        completer=Words(),
        complete_while_typing=False,
        complete_in_thread=True,
        multiline=True,
        prompt_continuation=_MORE,
        key_bindings=keys,
        enable_history_search=False,
    )
    while True:
        try:
            yield prompt.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def _private(path: Path) -> Path:
    """The path of a file that is there, and that its owner alone may read; of none where it cannot be made."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except OSError as error:
        say(f"note: statements are not remembered: {path}: {error.strerror}")
        return Path(os.devnull)
    return path
