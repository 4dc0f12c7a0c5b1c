"""``segreader completion``: the script that has a shell complete commands, options, places and topics."""

from __future__ import annotations

import click

from segreader.cli.completing import SHELLS, script
from segreader.cli.output import debug_option

_EPILOG = """\b
Once, for each shell that starts:
  echo 'eval "$(segreader completion bash)"' >> ~/.bashrc
  echo 'eval "$(segreader completion zsh)"' >> ~/.zshrc       (after compinit)
  segreader completion fish > ~/.config/fish/completions/segreader.fish
"""


@click.command(epilog=_EPILOG, short_help="Print the script that completes command lines in bash, zsh or fish.")
@click.argument("shell", type=click.Choice(SHELLS))
@debug_option
def completion(shell: str) -> None:
    """Print a script for SHELL, which then completes commands, options, places, topics and partitions.

    Topics and partitions are listed from the location that is typed, for two seconds at most, and kept for a minute in
    ~/.cache/segreader ($XDG_CACHE_HOME). No command of a place (cmd:…) is run for that.
    """
    click.echo(script(click.get_current_context().find_root().command, shell), nl=False)
