"""Commands that are imported when they are called: `kourou --help` needs their names only."""

from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup


class LazyGroup(TyperGroup):
    """A group whose commands may be lazy: `promised` has the module of each."""

    promised: ClassVar[dict[str, tuple[str, str]]] = {}
    """Command name -> module, and the name of a function or of another group in it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in self.promised:
            self.add_command(_load(args[0], *self.promised[args[0]]), args[0])
        return super().resolve_command(ctx, args)


def promise(app: typer.Typer, name: str, module: str, attribute: str, text: str) -> None:
    """Adds a command, which is imported when it is called, to `app`, whose class must be LazyGroup."""
    LazyGroup.promised[name] = module, attribute
    app.add_typer(typer.Typer(help=text), name=name)


def _load(name: str, module: str, attribute: str) -> Any:
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False)
    alone.command(name)(found)
    return typer.main.get_command(alone)
